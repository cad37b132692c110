package bounds

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Message checks a protobuf message as Document checks a document. The struct tags of like map
// field numbers to fields. It also returns an error for messages nested deeper than MaxDepth.
func Message(raw []byte, like any) error {
	t := plain(reflect.TypeOf(like))
	// The message is encoded as a document later, which costs its bytes once per level.
	if err := shallow(raw, t, 0, min(MaxDepth, MaxNestedBytes/max(len(raw), 1))); err != nil {
		return err
	}
	if !suspect(raw) || !holds(t) {
		return nil
	}
	return walkMessage(raw, t, nil)
}

// Harmless reports whether Message would accept the message for every type. It is true for most
// messages and does not decode them.
func Harmless(raw []byte) bool {
	return len(raw) < 2*MaxDepth && !suspect(raw) // a level takes at least two bytes
}

// walkMessage recurses into Go types that contain quantities; none of them contains itself.
func walkMessage(raw []byte, t reflect.Type, path *field.Path) error {
	counts := map[protowire.Number]int{}
	for len(raw) > 0 {
		number, wire, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(number, wire, raw); n < 0 {
			return nil
		}
		value := raw[:n]
		raw = raw[n:]
		if wire != protowire.BytesType {
			continue
		}
		content, _ := protowire.ConsumeBytes(value)
		if t == quantityType {
			if number == 1 {
				if err := refused(path, Quantity(string(content))); err != nil {
					return err
				}
			}
			continue
		}
		index := counts[number]
		counts[number]++
		if err := walkField(content, t, number, index, path); err != nil {
			return err
		}
	}
	return nil
}

// walkField visits the index-th value of the field with the number.
func walkField(content []byte, t reflect.Type, number protowire.Number, index int, path *field.Path) error {
	f, ok := numbered(t, number)
	if !ok || !holds(f.Type) {
		return nil
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name != "" {
		path = path.Child(name)
	}
	of := plain(f.Type)
	switch of.Kind() {
	case reflect.Slice:
		return walkMessage(content, plain(of.Elem()), path.Index(index))
	case reflect.Map:
		key, values := entryOf(content)
		for _, value := range values {
			if err := walkMessage(value, plain(of.Elem()), path.Key(key)); err != nil {
				return err
			}
		}
		return nil
	}
	return walkMessage(content, of, path)
}

var fieldsOfTypes sync.Map // reflect.Type to map[protowire.Number]reflect.StructField

// numbered returns the field with a number in the protobuf encoding. It caches the struct tags of a
// type, because a message may have a million fields.
func numbered(t reflect.Type, number protowire.Number) (reflect.StructField, bool) {
	known, ok := fieldsOfTypes.Load(t)
	if !ok {
		known, _ = fieldsOfTypes.LoadOrStore(t, fieldsByNumber(t))
	}
	f, ok := known.(map[protowire.Number]reflect.StructField)[number]
	return f, ok
}

func fieldsByNumber(t reflect.Type) map[protowire.Number]reflect.StructField {
	if t.Kind() != reflect.Struct {
		return nil
	}
	fields := map[protowire.Number]reflect.StructField{}
	for i := range t.NumField() {
		f := t.Field(i)
		parts := strings.SplitN(f.Tag.Get("protobuf"), ",", 3)
		if len(parts) < 2 {
			continue
		}
		if number, err := strconv.ParseInt(parts[1], 10, 32); err == nil {
			fields[protowire.Number(number)] = f
		}
	}
	return fields
}

// entryOf splits a map entry into key and values. A client may send several values; all are
// checked.
func entryOf(raw []byte) (key string, values [][]byte) {
	for len(raw) > 0 {
		number, wire, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return key, values
		}
		size := protowire.ConsumeFieldValue(number, wire, raw[n:])
		if size < 0 {
			return key, values
		}
		if wire == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(raw[n : n+size])
			switch number {
			case 1:
				key = string(content)
			case 2:
				values = append(values, content)
			}
		}
		raw = raw[n+size:]
	}
	return key, values
}
