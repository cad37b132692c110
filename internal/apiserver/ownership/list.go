package ownership

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// lister lists the fields of an object that differ from an empty object of its type.
type lister struct {
	// unknown is set if there is no plan for a value; the listed fields must then not be used.
	unknown bool
}

// always lists the fields of a value that exists in an empty object, too, as the zero value of its
// type.
func (l *lister) always(set *fieldpath.Set, n *node, v reflect.Value) {
	for i := range n.fields {
		f := &n.fields[i]
		child := f.GetFrom(v)
		switch {
		case l.unknown:
			return
		case f.CanOmit(child):
		case !f.always:
			l.added(set, f.element, f.node, child)
		case child.IsZero():
		case child.Kind() != reflect.Struct:
			l.fromZero(set, f.element, f.node, child)
		case f.node.shape == object:
			var below fieldpath.Set
			l.always(&below, f.node, child)
			if !below.Empty() {
				*set.Children.Descend(f.element) = below
			}
		case f.node.shape == leaf:
			if l.differsFromZero(child) {
				set.Members.Insert(f.element)
			}
		default:
			l.unknown = true
		}
	}
	l.unknown = l.unknown || n.shape != object
}

// differsFromZero reports whether an atomic struct differs from an empty one.
func (l *lister) differsFromZero(v reflect.Value) bool {
	if !v.CanAddr() {
		l.unknown = true
		return false
	}
	switch moment := v.Addr().Interface().(type) { // most atomic structs are times
	case *metav1.Time:
		return !moment.IsZero()
	case *metav1.MicroTime:
		return !moment.IsZero()
	}
	mine, err := value.NewValueReflect(v.Addr().Interface())
	if err != nil {
		l.unknown = true
		return false
	}
	zero, err := value.NewValueReflect(reflect.New(v.Type()).Interface())
	if err != nil {
		l.unknown = true
		return false
	}
	return !value.Equals(mine, zero)
}

// fromZero lists a non-zero value that is no struct, where an empty object has null, zero or an
// empty string: its parts are new, but it is not.
func (l *lister) fromZero(set *fieldpath.Set, pe fieldpath.PathElement, n *node, v reflect.Value) {
	if n.custom {
		l.unknown = true
		return
	}
	var below fieldpath.Set
	if n.shape == leaf || !l.below(&below, n, v) {
		set.Members.Insert(pe)
		return
	}
	*set.Children.Descend(pe) = below
}

// added lists a value that an empty object does not have.
func (l *lister) added(set *fieldpath.Set, pe fieldpath.PathElement, n *node, v reflect.Value) {
	set.Members.Insert(pe)
	if n.shape == leaf {
		return
	}
	var below fieldpath.Set
	if l.below(&below, n, v) && !below.Empty() {
		*set.Children.Descend(pe) = below
	}
}

// sortThreshold is the number of elements from which they are sorted before insertion: an insertion
// into a sorted set moves all elements behind it.
const sortThreshold = 256

// below lists the parts of a value. It returns false if there are none; the value is then owned as
// a whole.
func (l *lister) below(set *fieldpath.Set, n *node, v reflect.Value) bool {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return false
		}
		v = v.Elem()
	}
	switch n.shape {
	case object:
		some := false
		for i := range n.fields {
			f := &n.fields[i]
			if child := f.GetFrom(v); !f.CanOmit(child) {
				some = true
				l.added(set, f.element, f.node, child)
			}
		}
		return some
	case mapping:
		l.entries(set, n, v)
		return v.Len() > 0
	case keyed, setlike:
		l.items(set, n, v)
		return v.Len() > 0
	}
	l.unknown = true
	return false
}

// entries lists the entries of a map.
func (l *lister) entries(set *fieldpath.Set, n *node, v reflect.Value) {
	if v.Len() < sortThreshold {
		for it := v.MapRange(); it.Next(); {
			l.added(set, fieldpath.FieldNameElement(it.Key().String()), n.item, it.Value())
		}
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		l.added(set, fieldpath.FieldNameElement(key.String()), n.item, v.MapIndex(key))
	}
}

// items lists the items of a list.
func (l *lister) items(set *fieldpath.Set, n *node, v reflect.Value) {
	type item struct {
		element fieldpath.PathElement
		value   reflect.Value
	}
	var all []item
	for i := range v.Len() {
		element := l.element(n, v.Index(i))
		switch {
		case l.unknown:
			return
		case v.Len() < sortThreshold:
			l.item(set, n, element, v.Index(i))
		default:
			all = append(all, item{element, v.Index(i)})
		}
	}
	slices.SortFunc(all, func(a, b item) int { return a.element.Compare(b.element) })
	for i := range all {
		l.item(set, n, all[i].element, all[i].value)
	}
}

// item lists an item of a list.
func (l *lister) item(set *fieldpath.Set, n *node, pe fieldpath.PathElement, v reflect.Value) {
	if set.Members.Has(pe) {
		l.unknown = true // duplicate items have other rules of ownership
		return
	}
	l.added(set, pe, n.item, v)
}

// element returns the path element of a list's item.
func (l *lister) element(n *node, v reflect.Value) (pe fieldpath.PathElement) {
	if n.shape == setlike {
		scalar, ok := scalarOf(v)
		if !ok || n.item.custom {
			l.unknown = true
			return pe
		}
		of := value.NewValueInterface(scalar)
		pe.Value = &of
	} else {
		fields := make(value.FieldList, 0, len(n.keys))
		for i := range n.keys {
			k := &n.keys[i]
			found := k.fallback
			if part := k.entry.GetFrom(v); !k.entry.CanOmit(part) {
				var ok bool
				if found, ok = scalarOf(part); !ok {
					l.unknown = true
					return pe
				}
			}
			if found != nil {
				fields = append(fields, value.Field{Name: k.name, Value: value.NewValueInterface(found)})
			}
		}
		if len(fields) == 0 {
			l.unknown = true
			return pe
		}
		pe.Key = &fields
	}
	return pe
}

// scalarOf returns a string, number or boolean as a schema value.
func scalarOf(v reflect.Value) (any, bool) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.String:
		return v.String(), true
	case v.CanInt():
		return v.Int(), true
	case v.Kind() == reflect.Bool:
		return v.Bool(), true
	}
	return nil, false
}
