package bounds

import (
	"fmt"
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxDepth is the allowed nesting of messages, as of JSON and YAML. The generated decoders recurse
// once per level without a limit, and an overflowing stack ends the process: three megabytes hold
// half a million nested schemas.
const MaxDepth = 10_000

// shallow returns an error for a message nested deeper than limit. It inspects only types that can
// contain themselves.
func shallow(raw []byte, t reflect.Type, depth, limit int) error {
	if !endless(t) {
		return nil
	}
	if depth > limit {
		return fmt.Errorf("messages are nested deeper than %d", limit)
	}
	for len(raw) > 0 {
		number, wire, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(number, wire, raw[n:])
		if size < 0 {
			return nil
		}
		if wire == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(raw[n : n+size])
			if err := shallowField(content, t, number, depth+1, limit); err != nil {
				return err
			}
		}
		raw = raw[n+size:]
	}
	return nil
}

func shallowField(content []byte, t reflect.Type, number protowire.Number, depth, limit int) error {
	f, ok := numbered(t, number)
	if !ok {
		return nil
	}
	of := plain(f.Type)
	switch of.Kind() {
	case reflect.Slice:
		return shallow(content, plain(of.Elem()), depth, limit)
	case reflect.Map:
		_, values := entryOf(content)
		for _, value := range values {
			if err := shallow(value, plain(of.Elem()), depth, limit); err != nil {
				return err
			}
		}
		return nil
	}
	return shallow(content, of, depth, limit)
}

var endlessTypes sync.Map // reflect.Type to bool

// endless reports whether a type can contain itself.
func endless(t reflect.Type) bool {
	if known, ok := endlessTypes.Load(t); ok {
		return known.(bool)
	}
	parts := map[reflect.Type]bool{}
	collect(t, parts)
	found := false
	for part := range parts {
		below := map[reflect.Type]bool{}
		for i := range part.NumField() {
			collect(part.Field(i).Type, below)
		}
		found = found || below[part]
	}
	endlessTypes.Store(t, found)
	return found
}

// collect adds all structs that a value of the type can contain.
func collect(t reflect.Type, into map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collect(t.Elem(), into)
	case reflect.Struct:
		if into[t] {
			return
		}
		into[t] = true
		for i := range t.NumField() {
			collect(t.Field(i).Type, into)
		}
	}
}
