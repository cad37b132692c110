package bounds

import (
	"encoding/json"
	"reflect"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Raw returns an error for invalid JSON that an object carries unread. In a protobuf message it may
// be any bytes; in a document it may contain numbers that are too large. The library for field
// ownership panics on it.
func Raw(obj any) error {
	return walkRaw(reflect.ValueOf(obj))
}

var rawTypes = map[reflect.Type]bool{reflect.TypeFor[runtime.RawExtension](): true, reflect.TypeFor[apiextensionsv1.JSON](): true}

var rawHolders sync.Map // reflect.Type to bool: whether it may contain such JSON

func holdsRaw(t reflect.Type) bool {
	known, ok := rawHolders.Load(t)
	if !ok {
		known = reaches(t, func(t reflect.Type) bool { return rawTypes[t] }, map[reflect.Type]bool{})
		rawHolders.Store(t, known)
	}
	return known.(bool)
}

func walkRaw(v reflect.Value) error {
	if !v.IsValid() || !holdsRaw(v.Type()) {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		return walkRaw(v.Elem())
	case reflect.Struct:
		if rawTypes[v.Type()] {
			return readable(v.FieldByName("Raw").Bytes())
		}
		for i := range v.NumField() {
			if err := walkRaw(v.Field(i)); err != nil {
				return err
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := walkRaw(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			if err := walkRaw(entry.Value()); err != nil {
				return err
			}
		}
	}
	return nil
}

func readable(raw []byte) error {
	if raw == nil {
		return nil
	}
	var value any
	return json.Unmarshal(raw, &value)
}
