package custom

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// The schema library compares the text of each error with those of all earlier errors. An object of
// 3 MB can have a million wrong values, whose comparison would take days and ignore the request's
// timeout. So an object with many values is first validated in parts, and refused with the errors
// of the first parts.
const (
	maxUnsplit = 4_000 // validated by the library alone; half a second at most
	maxErrors  = 1_000 // maximum number of reported errors
)

// checked is a schema validator with its schema.
type checked struct {
	validation.SchemaValidator
	schema *spec.Schema
}

// tooManyErrors returns a value's errors if there are too many for the library, or nil. old is the
// value before the change; nil for a new one. If old has too many errors too, ratcheting may excuse
// them, and the library decides.
func tooManyErrors(at *field.Path, value, old any, validator validation.SchemaValidator) field.ErrorList {
	c, ok := validator.(*checked)
	if !ok {
		return nil
	}
	found := partErrors(c.schema, at, value)
	if len(found) < maxErrors || old != nil && len(partErrors(c.schema, at, old)) >= maxErrors {
		return nil
	}
	where := at
	if where == nil {
		where = field.NewPath("")
	}
	return append(found[:maxErrors:maxErrors], field.Forbidden(where, fmt.Sprintf("at least %d errors; the others are not reported", maxErrors)))
}

func partErrors(schema *spec.Schema, at *field.Path, value any) field.ErrorList {
	if !moreThan(maxUnsplit, value) {
		return nil
	}
	p := parts{at: at, of: map[*spec.Schema]map[string]*spec.Schema{}, validators: map[*spec.Schema]validation.SchemaValidator{}}
	p.validate(schema, nil, value)
	return p.found
}

// moreThan reports whether a value consists of more than n values, itself included.
func moreThan(n int, value any) bool {
	var count func(any)
	count = func(value any) {
		n--
		switch value := value.(type) {
		case map[string]any:
			for _, item := range value {
				if count(item); n < 0 {
					return
				}
			}
		case []any:
			for _, item := range value {
				if count(item); n < 0 {
					return
				}
			}
		}
	}
	count(value)
	return n < 0
}

// parts validates an object in parts.
type parts struct {
	at         *field.Path
	of         map[*spec.Schema]map[string]*spec.Schema // properties
	validators map[*spec.Schema]validation.SchemaValidator
	found      field.ErrorList
}

// validate validates parts of a value. It returns the number of values that are not validated yet,
// the value itself included.
func (p *parts) validate(schema *spec.Schema, at *place, value any) int {
	left := 1
	p.each(schema, at, value, func(schema *spec.Schema, at place, item any) bool {
		switch item.(type) {
		case map[string]any, []any:
			left += p.validate(schema, &at, item)
		default:
			left++
		}
		return len(p.found) < maxErrors
	})
	if left <= maxUnsplit || len(p.found) >= maxErrors {
		return left
	}
	p.each(schema, at, value, p.check)
	return 1
}

// check validates a part without its path, which is faster, and again with its path after an error.
// It reports whether to go on.
func (p *parts) check(schema *spec.Schema, at place, value any) bool {
	v, ok := p.validators[schema]
	if !ok {
		v = validation.NewSchemaValidatorFromOpenAPI(schema)
		p.validators[schema] = v
	}
	if !v.Validate(value).IsValid() {
		placed := validation.NewRatchetingSchemaValidator(schema, nil, at.String(), strfmt.Default)
		p.found = append(p.found, validation.ValidateCustomResource(p.at, value, placed)...)
	}
	return len(p.found) < maxErrors
}

// each calls fn with the values that have schemas of their own, until fn returns false.
func (p *parts) each(schema *spec.Schema, at *place, value any, fn func(*spec.Schema, place, any) bool) {
	switch value := value.(type) {
	case []any:
		if schema.Items == nil || schema.Items.Schema == nil {
			return
		}
		for i, item := range value {
			if !fn(schema.Items.Schema, place{within: at, index: i}, item) {
				return
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			of := p.property(schema, name)
			if of != nil && !fn(of, place{within: at, name: name, named: true}, value[name]) {
				return
			}
		}
	}
}

// property returns the schema of a field; nil if there is none.
func (p *parts) property(schema *spec.Schema, name string) *spec.Schema {
	if of := p.of[schema][name]; of != nil {
		return of
	}
	if of, ok := schema.Properties[name]; ok {
		if p.of[schema] == nil {
			p.of[schema] = map[string]*spec.Schema{}
		}
		p.of[schema][name] = &of
		return &of
	}
	if schema.AdditionalProperties == nil {
		return nil
	}
	return schema.AdditionalProperties.Schema
}

// place is the path of a value. Its text is only made after an error.
type place struct {
	within *place
	name   string // of a field
	named  bool
	index  int // in a list
}

func (p *place) String() string {
	switch {
	case p == nil:
		return ""
	case !p.named:
		return p.within.String() + "[" + strconv.Itoa(p.index) + "]"
	case p.within == nil:
		return p.name
	}
	return p.within.String() + "." + p.name
}
