package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/bounds"
)

// decode decodes the object strictly, into the version of the file. It returns false if the object
// cannot be validated: it has values of the wrong type.
func (o *object) decode() bool {
	o.reportDuplicates()
	if o.kind.custom != nil {
		return o.decodeCustom()
	}
	obj, err := api.Scheme.New(o.kind.gvk)
	if err != nil {
		o.fail("", err.Error())
		return false
	}
	if err := bounds.Document(o.json, obj); err != nil {
		o.fail("", err.Error())
		return false
	}
	strict, err := kjson.UnmarshalStrict(o.json, obj)
	if err == nil {
		err = bounds.Raw(obj)
	}
	if err != nil {
		o.reportTypes(reflect.TypeOf(obj), err)
		return false
	}
	o.reportStrict(strict)
	o.sent = obj
	return true
}

func (o *object) decodeCustom() bool {
	u := &unstructured.Unstructured{}
	strict, err := kjson.UnmarshalStrict(o.json, &u.Object)
	if err == nil {
		var more []error
		more, err = o.kind.custom.Take(u)
		strict = append(strict, more...)
	}
	if err != nil {
		o.fail(pathOf(err), err.Error())
		return false
	}
	o.reportStrict(strict)
	o.sent = u
	return true
}

// reportDuplicates reports keys that stand twice. kubectl would silently take the last one.
func (o *object) reportDuplicates() {
	for _, d := range o.duplicates {
		o.at(Error, d.path, d.key, fmt.Sprintf("the field stands twice; the first is in line %d", d.first.Line))
	}
}

// shape returns what the object's kind allows.
func (o *object) shape() shape {
	if o.kind.schema != nil {
		return shape{schema: o.kind.schema}
	}
	obj, err := api.Scheme.New(o.kind.gvk)
	if err != nil {
		return shape{}
	}
	return shape{goType: plainType(reflect.TypeOf(obj))}
}

// reportStrict reports unknown fields. Duplicate ones are found in the nodes already.
func (o *object) reportStrict(problems []error) {
	for _, p := range problems {
		if path := pathOf(p); strings.HasPrefix(p.Error(), "unknown field") {
			o.reportUnknown(path)
		} else if len(o.duplicates) == 0 {
			o.fail(path, p.Error())
		}
	}
}

// pathOf returns the path that a decoder's error names.
func pathOf(err error) string {
	var field kjson.FieldError
	if errors.As(err, &field) {
		return field.FieldPath()
	}
	if _, quoted, ok := strings.Cut(err.Error(), "unknown field "); ok {
		if path, err := strconv.Unquote(quoted); err == nil {
			return path
		}
	}
	return ""
}

// reportUnknown reports an unknown field with the nearest names at its place, or with the places
// where it is allowed.
func (o *object) reportUnknown(path string) {
	at := find(o.node, path)
	_, name := parentOf(path)
	parent := strings.TrimSuffix(strings.TrimSuffix(path, name), ".")
	if at.whole && at.key != nil { // a key may have dots in it
		name = at.key.Value
		parent = strings.TrimSuffix(strings.TrimSuffix(path, name), ".")
	}
	f := Finding{Severity: Error, Path: path, Message: "unknown field"}
	where, ok := o.shapeAt(parent)
	if !ok {
		o.add(f, at.mark())
		return
	}
	allowed := where.fields()
	f.Nearest = nearest(name, allowed)
	for _, meant := range f.Nearest {
		if o.misspelt == nil {
			o.misspelt = map[string]bool{}
		}
		o.misspelt[join(parent, meant)] = true
	}
	switch {
	case len(f.Nearest) == 0:
		f.Message += o.allowedAt(where, parent, name, allowed)
	case at.whole && at.key != nil && len(f.Nearest) == 1 && !hasKey(at.parent, f.Nearest[0]):
		f.fix = o.replace(at.key, f.Nearest[0])
	}
	o.add(f, at.mark())
}

// shapeAt returns the shape at a path; metadata of custom resources is ObjectMeta.
func (o *object) shapeAt(path string) (shape, bool) {
	s := o.shape()
	if o.kind.custom == nil && o.kind.schema == nil {
		return s.at(path)
	}
	if path == "metadata" || strings.HasPrefix(path, "metadata.") {
		return shape{goType: metaType}.at(strings.TrimPrefix(strings.TrimPrefix(path, "metadata"), "."))
	}
	if s.schema == nil {
		return shape{}, false
	}
	return s.at(path)
}

// mostListed is how many allowed fields an error lists.
const mostListed = 12

// allowedAt says where else a field is allowed, or which fields are allowed instead.
func (o *object) allowedAt(where shape, parent, name string, allowed []string) string {
	if paths := where.elsewhere(name); len(paths) > 0 && len(paths) <= 2 {
		for i := range paths {
			paths[i] = join(parent, paths[i])
		}
		return "; it is allowed at " + strings.Join(paths, " or ")
	}
	for up := parent; up != ""; {
		up = above(up)
		if s, ok := o.shapeAt(up); ok {
			if _, ok := s.field(name); ok && s.goType != nil || s.schema != nil && ok {
				return "; it is allowed at " + join(up, name)
			}
		}
	}
	switch {
	case len(allowed) == 0:
		return "; no fields are allowed here"
	case len(allowed) <= mostListed:
		return "; allowed are " + strings.Join(allowed, ", ")
	}
	return ""
}

// above returns the path of the field or item that has the one at path.
func above(path string) string {
	if i := strings.LastIndexAny(path, ".["); i >= 0 {
		return strings.TrimSuffix(path[:i], ".")
	}
	return ""
}

// reportTypes reports values of the wrong type; err is the decoder's error.
func (o *object) reportTypes(t reflect.Type, err error) {
	var content any
	if kjson.UnmarshalCaseSensitivePreserveInts(o.json, &content) == nil {
		wrong := mismatches(content, t, "")
		for _, w := range wrong {
			found := w.found
			if o.secretAt(w.path) {
				found = "a value of another type"
			}
			o.fail(w.path, fmt.Sprintf("found %s; allowed is %s", found, w.want))
		}
		if len(wrong) > 0 {
			// Misspelt fields are reported as well.
			o.reportStrict(strictWithout(content, wrong, t))
			return
		}
	}
	o.fail("", strings.TrimPrefix(err.Error(), "json: "))
}

// strictWithout returns the strict errors of the content without the values of the wrong type.
func strictWithout(content any, wrong []mismatch, t reflect.Type) []error {
	skip := map[string]bool{}
	for _, w := range wrong {
		skip[w.path] = true
	}
	data, err := json.Marshal(without(content, "", skip))
	if err != nil {
		return nil
	}
	strict, _ := kjson.UnmarshalStrict(data, reflect.New(plainType(t)).Interface())
	return strict
}

func without(value any, path string, skip map[string]bool) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			if at := join(path, name); !skip[at] {
				out[name] = without(item, at, skip)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			if at := fmt.Sprintf("%s[%d]", path, i); !skip[at] {
				out[i] = without(item, at, skip)
			}
		}
		return out
	}
	return value
}

func hasKey(n *goyaml.Node, name string) bool {
	for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}
