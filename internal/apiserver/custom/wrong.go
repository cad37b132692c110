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

// The library of schemas compares each error with all that it has found before, by their texts: an object of 3 MB has room for a million values that
// are wrong, which would be compared for days, request timeout or not. So an object of many values is looked at in parts first, and is refused
// with what is wrong in the first ones.
const (
	fewValues = 4_000 // are left to the library, half a second at most
	mostWrong = 1_000 // are told of
)

// checked is a schema with what the library checks by it.
type checked struct {
	validation.SchemaValidator
	schema *spec.Schema
}

// tooWrong is what is wrong with a value when that is more than the library should be asked for, else nothing. old is what is changed, nil when nothing is:
// what was too wrong before may be excused by that (ratcheting).
func tooWrong(at *field.Path, value, old any, validator validation.SchemaValidator) field.ErrorList {
	c, ok := validator.(*checked)
	if !ok {
		return nil
	}
	found := look(c.schema, at, value)
	if len(found) < mostWrong || old != nil && len(look(c.schema, at, old)) >= mostWrong {
		return nil
	}
	where := at
	if where == nil {
		where = field.NewPath("")
	}
	return append(found[:mostWrong:mostWrong], field.Forbidden(where, fmt.Sprintf("%d errors at least: the others are not told of", mostWrong)))
}

func look(schema *spec.Schema, at *field.Path, value any) field.ErrorList {
	if !moreThan(fewValues, value) {
		return nil
	}
	p := parts{at: at, of: map[*spec.Schema]map[string]*spec.Schema{}, validators: map[*spec.Schema]validation.SchemaValidator{}}
	p.look(schema, nil, value)
	return p.found
}

// moreThan tells whether there are more values than n in one, itself among them.
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

// parts looks at an object in parts.
type parts struct {
	at         *field.Path
	of         map[*spec.Schema]map[string]*spec.Schema // properties
	validators map[*spec.Schema]validation.SchemaValidator
	found      field.ErrorList
}

// look gives how many values have not been looked at in parts, the value itself among them.
func (p *parts) look(schema *spec.Schema, at *place, value any) int {
	left := 1
	p.each(schema, at, value, func(schema *spec.Schema, at place, item any) bool {
		switch item.(type) {
		case map[string]any, []any:
			left += p.look(schema, &at, item)
		default:
			left++
		}
		return len(p.found) < mostWrong
	})
	if left <= fewValues || len(p.found) >= mostWrong {
		return left
	}
	p.each(schema, at, value, p.check)
	return 1
}

// check has the library look at a part by itself, and again with its place when something is wrong. It reports whether to go on.
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
	return len(p.found) < mostWrong
}

// each goes through the values that a schema has schemas of their own for, as long as fn says so.
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

// property is the schema of a field, nil when there is none.
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

// place is where a value stands; its text is made when something is wrong there.
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
