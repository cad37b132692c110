package openapi

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

type documented interface{ SwaggerDoc() map[string]string }

func docsOf(t reflect.Type) map[string]string {
	if d, ok := reflect.Zero(t).Interface().(documented); ok {
		return d.SwaggerDoc()
	}
	return nil
}

// structSchema returns the definition of a struct, made from its fields.
func (s *schemas) structSchema(t reflect.Type, name string) spec.Schema {
	value := spec.Schema{SchemaProps: spec.SchemaProps{Description: docsOf(t)[""], Type: []string{"object"}}}
	merge := s.merge[name]
	if merge == nil {
		merge = &smdschema.Map{} // not part of any type that can be applied
	}
	s.addFields(&value, t, merge, optionalFields[name], requiredFields[name])
	for _, field := range granularFields[name] {
		property := value.Properties[field]
		property.AddExtension(extensionMapType, "granular")
		value.Properties[field] = property
	}
	if merge.ElementRelationship == smdschema.Atomic {
		value.AddExtension(extensionMapType, "atomic")
	}
	if len(merge.Unions) > 0 {
		value.AddExtension(extensionUnions, unions(merge.Unions))
	}
	return value
}

func (s *schemas) addFields(value *spec.Schema, t reflect.Type, merge *smdschema.Map, optional, required []string) {
	docs := docsOf(t)
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if f.Anonymous && name == "" {
			s.addFields(value, f.Type, merge, optional, required)
			continue
		}
		omitted := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		property := s.property(f.Type, omitted)
		property.Description = fieldDoc(modelName(t)+"."+name, docs[name]) + enumText(t, f)
		if strategy := f.Tag.Get("patchStrategy"); strategy != "" {
			property.AddExtension(extensionStrategy, strategy)
		}
		if key := f.Tag.Get("patchMergeKey"); key != "" {
			property.AddExtension(extensionMergeKey, key)
		}
		if in, ok := merge.FindField(name); ok {
			applyMerge(&property, in)
		}
		if property.Items != nil && atomicLists[modelName(t)] {
			property.AddExtension(extensionListType, "atomic")
		}
		if value.Properties == nil {
			value.Properties = map[string]spec.Schema{}
		}
		value.Properties[name] = property
		if !omitted && !slices.Contains(optional, name) || slices.Contains(required, name) {
			value.Required = append(value.Required, name)
		}
	}
}

// applyMerge adds a field's properties from server-side apply's schema.
func applyMerge(property *spec.Schema, field smdschema.StructField) {
	if field.Default != nil {
		if _, empty := field.Default.(map[string]any); !empty {
			property.Default = field.Default
		}
	}
	if list := field.Type.Inlined.List; list != nil && property.Items != nil {
		switch {
		case list.ElementRelationship == smdschema.Atomic:
			property.AddExtension(extensionListType, "atomic")
		case len(list.Keys) > 0:
			property.AddExtension(extensionListType, "map")
			property.AddExtension(extensionListKeys, list.Keys)
		default:
			property.AddExtension(extensionListType, "set")
		}
	}
	// An atomic map or struct. A named type has the mark itself.
	relationship := field.Type.ElementRelationship
	if m := field.Type.Inlined.Map; m != nil && m.ElementRelationship == smdschema.Atomic {
		relationship = &m.ElementRelationship
	}
	if relationship != nil && *relationship == smdschema.Atomic {
		property.AddExtension(extensionMapType, "atomic")
	}
}

func unions(list []smdschema.Union) []any {
	var out []any
	for _, u := range list {
		fields := map[string]any{}
		for _, f := range u.Fields {
			fields[f.FieldName] = f.DiscriminatorValue
		}
		entry := map[string]any{"fields-to-discriminateBy": fields}
		if u.Discriminator != nil {
			entry["discriminator"] = *u.Discriminator
		}
		out = append(out, entry)
	}
	return out
}

// custom types have their own JSON encoding.
type custom interface {
	OpenAPISchemaType() []string
	OpenAPISchemaFormat() string
}

// oneOf types are encoded as one of several JSON types, which OpenAPI v3 can express.
type oneOf interface{ OpenAPIV3OneOfTypes() []string }

// customSchema returns the definition of a type with its own JSON encoding.
func (s *schemas) customSchema(c custom) spec.Schema {
	value := spec.Schema{SchemaProps: spec.SchemaProps{Format: c.OpenAPISchemaFormat(), Type: c.OpenAPISchemaType()}}
	if one, ok := c.(oneOf); ok && s.dialect == v3 {
		value.Type, value.OneOf = nil, common.GenerateOpenAPIV3OneOfSchema(one.OpenAPIV3OneOfTypes())
	}
	if _, ok := c.(intstr.IntOrString); ok {
		value.Description = intOrStringDescription
	}
	return value
}

const intOrStringDescription = "IntOrString is a type that can hold an int32 or a string.  When used in JSON or YAML marshalling and unmarshalling, " +
	"it produces or consumes the inner type.  This allows you to have, for example, a JSON field that can accept a name or number."

// property returns the schema of a value of a type. As upstream, a field that is always present has
// its zero value as default.
func (s *schemas) property(t reflect.Type, omitted bool) spec.Schema {
	if t.Kind() == reflect.Pointer {
		return withoutDefault(s.property(t.Elem(), true))
	}
	if _, ok := reflect.Zero(t).Interface().(custom); ok {
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: s.ref(s.add(t))}}
	}
	switch t.Kind() {
	case reflect.Struct:
		value := spec.Schema{SchemaProps: spec.SchemaProps{Ref: s.ref(s.add(t))}}
		if !plainObjects[modelName(t)] {
			value.Default = map[string]any{}
		}
		return value
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return *spec.StrFmtProperty("byte")
		}
		items := s.property(t.Elem(), false)
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &items}}}
	case reflect.Map:
		values := s.property(t.Elem(), false)
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, AdditionalProperties: &spec.SchemaOrBool{Allows: true, Schema: &values}}}
	}
	value, zero := scalar(t.Kind())
	if !omitted {
		value.Default = zero
	}
	for _, v := range enumerations[typeKey(t)] {
		value.Enum = append(value.Enum, v.text)
	}
	return value
}

func withoutDefault(value spec.Schema) spec.Schema {
	value.Default = nil
	return value
}

func scalar(k reflect.Kind) (spec.Schema, any) {
	typed := func(name, format string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{name}, Format: format}}
	}
	switch k {
	case reflect.Bool:
		return typed("boolean", ""), false
	case reflect.Int32, reflect.Int16, reflect.Int8, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		return typed("integer", "int32"), 0
	case reflect.Int64, reflect.Int, reflect.Uint64, reflect.Uint:
		return typed("integer", "int64"), 0
	case reflect.Float64:
		return typed("number", "double"), 0
	case reflect.Float32:
		return typed("number", "float"), 0
	}
	return typed("string", ""), ""
}
