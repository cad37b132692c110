package verb

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/api/bounds"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// MergeObject applies a merge patch (RFC 7386) to a copy of the Go object, which is cheaper than to
// encode it, merge the JSON and decode the result. It reports false if the result could differ from
// that of the document. That is so for patches that need an error or warning (unknown or duplicate
// fields, values of the wrong type), and for a few that depend on the document's encoding.
func MergeObject(old runtime.Object, p PatchRequest) (runtime.Object, bool) {
	var patch map[string]any
	strict, err := kjson.UnmarshalStrict(p.Data, &patch)
	if err != nil || len(strict) > 0 || patch == nil || !mergeable(patch, false) || bounds.Fields(patch, old) != nil {
		return nil, false
	}
	out := old.DeepCopyObject()
	if !mergeValue(reflect.ValueOf(out).Elem(), patch) {
		return nil, false
	}
	wire.ClearKind(out)
	return out, true
}

// mergeable reports whether a value means the same however it is encoded. It excludes numbers with
// a fraction, which may stand for integers, and null within a list, which merging a document drops.
func mergeable(value any, listed bool) bool {
	switch v := value.(type) {
	case nil:
		return !listed
	case float64:
		return false
	case []any:
		for _, item := range v {
			if !mergeable(item, true) {
				return false
			}
		}
	case map[string]any:
		for _, item := range v {
			if !mergeable(item, listed) {
				return false
			}
		}
	}
	return true
}

// mergeValue merges a patch into a value that the caller owns; false if it cannot.
func mergeValue(to reflect.Value, patch any) bool {
	if patch == nil {
		to.SetZero()
		return true
	}
	fields, isObject := patch.(map[string]any)
	if !isObject {
		return replaceValue(to, patch)
	}
	if hasCustomUnmarshaler(to.Type()) {
		return false
	}
	switch to.Kind() {
	case reflect.Pointer:
		if to.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
		}
		return mergeValue(to.Elem(), patch)
	case reflect.Struct:
		known := fieldsOf(to.Type())
		for name, value := range fields {
			index, ok := known[name]
			if !ok || !mergeValue(to.FieldByIndex(index), value) {
				return false
			}
		}
		return true
	case reflect.Map:
		return mergeMap(to, fields)
	}
	return false
}

func mergeMap(to reflect.Value, fields map[string]any) bool {
	t := to.Type()
	if t.Key().Kind() != reflect.String || hasCustomUnmarshaler(t.Key()) {
		return false
	}
	if to.IsNil() {
		to.Set(reflect.MakeMapWithSize(t, len(fields)))
	}
	for name, value := range fields {
		key := reflect.ValueOf(name).Convert(t.Key())
		if value == nil {
			to.SetMapIndex(key, reflect.Value{})
			continue
		}
		item := reflect.New(t.Elem()).Elem()
		if found := to.MapIndex(key); found.IsValid() {
			item.Set(found)
		}
		if !mergeValue(item, value) {
			return false
		}
		to.SetMapIndex(key, item)
	}
	return true
}

// replaceValue replaces a value by a list, string, number or boolean.
func replaceValue(to reflect.Value, patch any) bool {
	if text, ok := patch.(string); ok && to.Kind() == reflect.String && !hasCustomUnmarshaler(to.Type()) {
		to.SetString(text)
		return true
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return false
	}
	fresh := reflect.New(to.Type())
	strict, err := kjson.UnmarshalStrict(data, fresh.Interface())
	if err != nil || len(strict) > 0 {
		return false
	}
	to.Set(fresh.Elem())
	return true
}

// hasCustomUnmarshaler reports whether a type has its own JSON decoding (a time, a quantity), so
// that nothing can be merged into it.
func hasCustomUnmarshaler(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler)
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	typeMeta        = reflect.TypeFor[metav1.TypeMeta]()

	structFields sync.Map // reflect.Type → map[string][]int
)

// fieldsOf returns a struct's fields by their JSON names, including those of inlined structs. Kind
// and apiVersion are not among them: patches of those use the document.
func fieldsOf(t reflect.Type) map[string][]int {
	if found, ok := structFields.Load(t); ok {
		return found.(map[string][]int)
	}
	fields := map[string][]int{}
	var inlined []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() || f.Type == typeMeta:
		case name != "":
			fields[name] = f.Index
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			inlined = append(inlined, f)
		}
	}
	for _, f := range inlined {
		for name, index := range fieldsOf(f.Type) {
			if _, hidden := fields[name]; !hidden {
				fields[name] = append(f.Index[:len(f.Index):len(f.Index)], index...)
			}
		}
	}
	structFields.Store(t, fields)
	return fields
}
