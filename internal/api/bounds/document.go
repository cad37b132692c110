package bounds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Document returns an error for a JSON document with a quantity, or with nested schemas, that
// exceed the limits. like is a value of the Go type that the document decodes into; its type shows
// where quantities are. Invalid JSON is left to the decoder, which refuses it before it reads any
// value.
func Document(doc []byte, like any) error {
	t := plain(reflect.TypeOf(like))
	if !shallowAnyway(len(doc)) && endless(t) {
		if _, work := Levels(doc); Nested(work) != nil {
			return Nested(work)
		}
	}
	if !suspect(doc) || !holds(t) {
		return nil
	}
	w := documentWalk{decoder: json.NewDecoder(bytes.NewReader(doc))}
	w.decoder.UseNumber()
	return w.value(t, nil)
}

// documentWalk visits the tokens of a document. It visits every value of a repeated field.
type documentWalk struct {
	decoder *json.Decoder
	ended   bool // no more tokens
}

// next returns the next token; nil at the end.
func (w *documentWalk) next() json.Token {
	token, err := w.decoder.Token()
	if err != nil {
		w.ended = true
		return nil
	}
	return token
}

func (w *documentWalk) value(t reflect.Type, path *field.Path) error {
	t = plain(t)
	token := w.next()
	if t == quantityType {
		return w.quantity(token, path)
	}
	switch token {
	case json.Delim('{'):
		for !w.ended && w.decoder.More() {
			name := fmt.Sprint(w.next())
			if err := w.entry(t, name, path); err != nil {
				return err
			}
		}
		w.next()
	case json.Delim('['):
		for i := 0; !w.ended && w.decoder.More(); i++ {
			if t.Kind() != reflect.Slice {
				w.skip()
			} else if err := w.value(t.Elem(), path.Index(i)); err != nil {
				return err
			}
		}
		w.next()
	}
	return nil
}

// entry visits the value of a struct's field or a map's key.
func (w *documentWalk) entry(t reflect.Type, name string, path *field.Path) error {
	switch t.Kind() {
	case reflect.Map:
		if holds(t.Elem()) {
			return w.value(t.Elem(), path.Key(name))
		}
	case reflect.Struct:
		if m := member(t, name); m != nil {
			return w.value(m, path.Child(name))
		}
	}
	w.skip()
	return nil
}

func (w *documentWalk) quantity(token json.Token, path *field.Path) error {
	switch text := token.(type) {
	case string:
		return refused(path, Quantity(text))
	case json.Number:
		return refused(path, Quantity(text.String()))
	case json.Delim:
		w.rest(text)
	}
	return nil
}

func (w *documentWalk) skip() {
	if token, ok := w.next().(json.Delim); ok {
		w.rest(token)
	}
}

// rest skips to the end of the object or list that begun started.
func (w *documentWalk) rest(begun json.Delim) {
	if begun != '{' && begun != '[' {
		return
	}
	for depth := 1; depth > 0 && !w.ended; {
		switch w.next() {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

func refused(path *field.Path, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Fields checks the content of an unstructured object as Document checks a document.
func Fields(content map[string]any, like any) error {
	if t := plain(reflect.TypeOf(like)); holds(t) {
		return walkFields(content, t, nil)
	}
	return nil
}

func walkFields(value any, t reflect.Type, path *field.Path) error {
	t = plain(t)
	switch value := value.(type) {
	case string:
		if t == quantityType {
			return refused(path, Quantity(value))
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for i, item := range value {
			if err := walkFields(item, t.Elem(), path.Index(i)); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, item := range value {
			var err error
			switch t.Kind() {
			case reflect.Map:
				err = walkFields(item, t.Elem(), path.Key(name))
			case reflect.Struct:
				if m := member(t, name); m != nil {
					err = walkFields(item, m, path.Child(name))
				}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
