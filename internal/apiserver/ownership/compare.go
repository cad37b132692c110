package ownership

import (
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// changes returns the fields that a write sets, and the fields that it removes. If fresh, live is
// empty.
func (t *Tracker) changes(live, obj runtime.Object, fresh bool) (set, removed *fieldpath.Set, ok bool) {
	if fresh {
		set = fieldpath.NewSet()
		l := lister{}
		l.always(set, t.plan, reflect.ValueOf(obj).Elem())
		if l.unknown {
			return nil, nil, false
		}
		return t.filter(set), nil, true
	}
	before, after := withoutEqualFields(live, obj)
	c, err := t.compare(before, after)
	if err != nil {
		return nil, nil, false
	}
	return t.filter(c.Modified.Union(c.Added)), t.filter(c.Removed), true
}

func (t *Tracker) filter(set *fieldpath.Set) *fieldpath.Set {
	if t.reset == nil || set.Empty() {
		return set
	}
	return t.reset.Filter(set)
}

func (t *Tracker) compare(before, after any) (*typed.Comparison, error) {
	old, err := t.typed(before)
	if err != nil {
		return nil, err
	}
	changed, err := t.typed(after)
	if err != nil {
		return nil, err
	}
	return old.Compare(changed)
}

func (t *Tracker) typed(obj any) (*typed.TypedValue, error) {
	v, err := value.NewValueReflect(obj)
	if err != nil {
		return nil, err
	}
	return typed.AsTyped(v, t.kind.Schema(), t.kind.TypeRef(), typed.AllowDuplicates)
}

// isEmpty reports whether obj is a new object of the scheme: empty except for its TypeMeta.
func isEmpty(obj runtime.Object) bool {
	v := reflect.ValueOf(obj).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Type != typeMetaType && !v.Field(i).IsZero() {
			return false
		}
	}
	return true
}

var (
	managedType    = reflect.TypeFor[[]metav1.ManagedFieldsEntry]()
	typeMetaType   = reflect.TypeFor[metav1.TypeMeta]()
	objectMetaType = reflect.TypeFor[metav1.ObjectMeta]()
)

// withoutEqualFields copies two objects without their equal parts: whole top-level fields and whole
// fields of the metadata. A field that is missing on both sides is neither set nor removed.
// managedFields itself has no owner.
func withoutEqualFields(live, obj runtime.Object) (before, after any) {
	old, changed := reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem()
	l, r := reflect.New(old.Type()), reflect.New(old.Type())
	copyDifferences(l.Elem(), r.Elem(), old, changed, true)
	return l.Interface(), r.Interface()
}

func copyDifferences(l, r, old, changed reflect.Value, descend bool) {
	for i := range old.NumField() {
		a, b := old.Field(i), changed.Field(i)
		switch {
		case a.Type() == typeMetaType, a.Type() == managedType:
		case descend && a.Type() == objectMetaType:
			copyDifferences(l.Field(i), r.Field(i), a, b, false)
		case !same(a, b):
			l.Field(i).Set(a)
			r.Field(i).Set(b)
		}
	}
}

// same is reflect.DeepEqual of two fields. It compares the most common types without copying them.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
		return a.Equal(b)
	case reflect.Slice:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
	case reflect.Map:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		if texts, ok := a.Interface().(map[string]string); ok {
			return maps.Equal(texts, b.Interface().(map[string]string))
		}
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
