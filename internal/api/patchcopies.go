package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// The library has one limit for copied bytes: a package variable, which belongs to the program that
// contains the API server. The copies of a patch are therefore counted here before the library
// applies it. The model tracks only the value at each path and the size of the value; the library
// does everything else of RFC 6902.

// copiesWithin returns nil if the copy operations of a patch add at most limit bytes, counted as
// the library counts them. Otherwise it returns the library's error for a patch that copies too
// much. A patch that fails earlier returns the library's error.
func copiesWithin(patch jsonpatch.Patch, doc []byte, limit int64) error {
	if !hasCopy(patch) || len(doc) == 0 {
		return nil
	}
	root := &docValue{raw: doc}
	if !root.open() {
		return nil // the library refuses the document
	}
	var copied int64
	for i, operation := range patch {
		n, err := root.take(operation)
		copied += n
		switch {
		case copied > limit:
			return failure(patch[:i], doc, jsonpatch.NewAccumulatedCopySizeError(limit, copied))
		case err != nil:
			return failure(patch[:i+1], doc, err)
		}
	}
	return nil
}

// failure returns the library's error for the patch, or otherwise if there is none.
func failure(patch jsonpatch.Patch, doc []byte, otherwise error) error {
	if _, err := patch.Apply(doc); err != nil {
		return err
	}
	return otherwise
}

func hasCopy(patch jsonpatch.Patch) bool {
	for _, operation := range patch {
		if operation.Kind() == "copy" {
			return true
		}
	}
	return false
}

// docValue is a value of the document. As in the library, it stays raw until an operation reaches
// into it; only then are duplicate keys dropped.
type docValue struct {
	raw    json.RawMessage // nil stands for null
	opened bool
	fields map[string]*docValue // of an object
	items  []*docValue          // of a list
	list   bool
}

var errNoSuchValue = errors.New("the patch cannot be applied")

// take models one operation and returns the number of bytes that it copies. A test is assumed to
// pass; the library reports a failed one.
func (v *docValue) take(operation jsonpatch.Operation) (copied int64, err error) {
	path, err := operation.Path()
	if err != nil {
		return 0, err
	}
	switch operation.Kind() {
	case "add":
		err = v.put(path, operand(operation))
	case "remove":
		_, err = v.remove(path)
	case "replace":
		err = v.replace(path, operand(operation))
	case "move":
		from, _ := operation.From()
		var moved *docValue
		if moved, err = v.remove(from); err == nil {
			err = v.put(path, moved)
		}
	case "copy":
		from, _ := operation.From()
		copied, err = v.copy(from, path)
	case "test":
		err = v.test(path)
	}
	return copied, err
}

// copy returns the size of the copy even if the target is invalid, because the library counts
// first.
func (v *docValue) copy(from, path string) (int64, error) {
	original, err := v.get(from)
	if err != nil {
		return 0, err
	}
	if _, _, err := v.parent(path); err != nil {
		return 0, err
	}
	text := original.text()
	return int64(len(text)), v.put(path, duplicate(original, text))
}

// test opens the compared value, as the library does.
func (v *docValue) test(path string) error {
	if path == "" {
		v.openAll()
		return nil
	}
	tested, err := v.get(path)
	if err == nil {
		tested.openAll()
	}
	return err
}

func (v *docValue) openAll() {
	if !v.open() {
		return
	}
	for _, field := range v.fields {
		field.openAll()
	}
	for _, item := range v.items {
		item.openAll()
	}
}

// operand returns the operation's value. null becomes a value without text, which no path can reach
// into.
func operand(operation jsonpatch.Operation) *docValue {
	raw, ok := operation["value"]
	if !ok {
		return nil
	}
	if raw == nil {
		return &docValue{}
	}
	return &docValue{raw: *raw}
}

func duplicate(original *docValue, text []byte) *docValue {
	if original == nil {
		return nil
	}
	return &docValue{raw: text}
}

// text returns the value as the library writes it into a copy.
func (v *docValue) text() []byte {
	switch {
	case v == nil:
		return nil
	case !v.opened:
		text, _ := json.Marshal(v.raw)
		return text
	case !v.list && v.fields == nil:
		return []byte("null")
	case v.list:
		return joined('[', len(v.items), ']', func(i int) []byte { return v.items[i].element() })
	}
	keys := make([]string, 0, len(v.fields))
	for key := range v.fields {
		keys = append(keys, key)
	}
	return joined('{', len(keys), '}', func(i int) []byte {
		name, _ := json.Marshal(keys[i])
		return append(append(name, ':'), v.fields[keys[i]].element()...)
	})
}

// element is text within an object or a list, where nil is null.
func (v *docValue) element() []byte {
	if v == nil {
		return []byte("null")
	}
	return v.text()
}

func joined(begin byte, n int, end byte, part func(int) []byte) []byte {
	out := []byte{begin}
	for i := range n {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, part(i)...)
	}
	return append(out, end)
}

// open reads the members of an object or a list.
func (v *docValue) open() bool {
	if v == nil || v.raw == nil {
		return false
	}
	if v.opened {
		return true
	}
	if v.list = bytes.HasPrefix(bytes.TrimLeft(v.raw, " \n\t"), []byte("[")); v.list {
		var items []json.RawMessage
		if json.Unmarshal(v.raw, &items) != nil {
			return false
		}
		for _, item := range items {
			v.items = append(v.items, member(item))
		}
	} else {
		var fields map[string]json.RawMessage
		if json.Unmarshal(v.raw, &fields) != nil {
			return false
		}
		if fields != nil {
			v.fields = make(map[string]*docValue, len(fields))
		}
		for key, field := range fields {
			v.fields[key] = member(field)
		}
	}
	v.opened = true
	return true
}

func member(raw json.RawMessage) *docValue {
	if string(raw) == "null" {
		return nil
	}
	return &docValue{raw: raw}
}

// parent returns the object or list that a path leads into, and the last key of the path.
func (v *docValue) parent(path string) (*docValue, string, error) {
	segments := strings.Split(path, "/")
	if len(segments) < 2 {
		return nil, "", errNoSuchValue
	}
	for i, segment := range segments {
		segments[i] = unescape.Replace(segment)
	}
	last := len(segments) - 1
	for _, segment := range segments[1:last] {
		next, err := v.child(segment)
		if err != nil || !next.open() {
			return nil, "", errNoSuchValue
		}
		v = next
	}
	return v, segments[last], nil
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// child returns the value of a key, nil if an object does not have the key.
func (v *docValue) child(key string) (*docValue, error) {
	if !v.list {
		return v.fields[key], nil
	}
	i, err := indexOf(key, len(v.items))
	if err != nil {
		return nil, err
	}
	return v.items[i], nil
}

// indexOf reads the index of one of n elements. A negative one counts from the end.
func indexOf(key string, n int) (int, error) {
	i, err := strconv.Atoi(key)
	if err == nil && i < 0 {
		i += n
	}
	if err != nil || i < 0 || i >= n {
		return 0, errNoSuchValue
	}
	return i, nil
}

func (v *docValue) get(path string) (*docValue, error) {
	in, key, err := v.parent(path)
	if err != nil {
		return nil, err
	}
	return in.child(key)
}

func (v *docValue) put(path string, what *docValue) error {
	in, key, err := v.parent(path)
	switch {
	case err != nil:
		return err
	case !in.list && in.fields == nil:
		return errNoSuchValue // null, into which the library cannot write
	case !in.list:
		in.fields[key] = what
		return nil
	case key == "-":
		in.items = append(in.items, what)
		return nil
	}
	i, err := indexOf(key, len(in.items)+1)
	if err != nil {
		return err
	}
	in.items = append(in.items, nil)
	copy(in.items[i+1:], in.items[i:])
	in.items[i] = what
	return nil
}

func (v *docValue) remove(path string) (*docValue, error) {
	in, key, err := v.parent(path)
	if err != nil {
		return nil, err
	}
	removed, err := in.child(key)
	if err != nil {
		return nil, err
	}
	if in.list {
		i, _ := indexOf(key, len(in.items))
		in.items = append(in.items[:i], in.items[i+1:]...)
		return removed, nil
	}
	if _, ok := in.fields[key]; !ok {
		return nil, errNoSuchValue
	}
	delete(in.fields, key)
	return removed, nil
}

func (v *docValue) replace(path string, what *docValue) error {
	if path == "" {
		if !what.open() {
			return errNoSuchValue
		}
		*v = *what
		return nil
	}
	in, key, err := v.parent(path)
	switch {
	case err != nil:
		return err
	case !in.list && in.fields == nil:
		return errNoSuchValue
	case !in.list:
		in.fields[key] = what
		return nil
	}
	i, err := indexOf(key, len(in.items))
	if err == nil {
		in.items[i] = what
	}
	return err
}
