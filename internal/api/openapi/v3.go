package openapi

import (
	"net/http"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	title           = "Kubernetes"
	extensionAction = "x-kubernetes-action"
	securityScheme  = "BearerToken"
)

// document3 returns the OpenAPI v3 document of routes.
func document3(s *schemas, routes []route, version string) *spec3.OpenAPI {
	doc := &spec3.OpenAPI{
		Version: "3.0.0",
		Info:    &spec.Info{InfoProps: spec.InfoProps{Title: title, Version: version}},
		Paths:   &spec3.Paths{Paths: map[string]*spec3.Path{}},
	}
	for _, r := range routes {
		path := &spec3.Path{}
		for _, p := range r.params {
			path.Parameters = append(path.Parameters, parameter3(p))
		}
		for i := range r.ops {
			*methodOf3(path, r.ops[i].method) = s.operation3(&r.ops[i], r.tag)
		}
		doc.Paths.Paths[r.path] = path
	}
	doc.Components = &spec3.Components{
		Schemas:         map[string]*spec.Schema{},
		SecuritySchemes: spec3.SecuritySchemes{securityScheme: bearer3()},
	}
	for name, value := range s.done {
		doc.Components.Schemas[name] = &value
	}
	return doc
}

func bearer3() *spec3.SecurityScheme {
	return &spec3.SecurityScheme{SecuritySchemeProps: spec3.SecuritySchemeProps{
		Type: "apiKey", Description: "Bearer Token authentication", Name: "authorization", In: "header",
	}}
}

func methodOf3(p *spec3.Path, method string) **spec3.Operation {
	switch method {
	case http.MethodPut:
		return &p.Put
	case http.MethodPost:
		return &p.Post
	case http.MethodPatch:
		return &p.Patch
	case http.MethodDelete:
		return &p.Delete
	case http.MethodHead:
		return &p.Head
	case http.MethodOptions:
		return &p.Options
	}
	return &p.Get
}

func parameter3(p parameter) *spec3.Parameter {
	return &spec3.Parameter{ParameterProps: spec3.ParameterProps{
		Name: p.name, In: p.in, Description: p.description, Required: p.in == "path",
		Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{p.kind}, UniqueItems: true}},
	}}
}

func (s *schemas) operation3(o *operation, tag string) *spec3.Operation {
	op := &spec3.Operation{OperationProps: spec3.OperationProps{
		Tags: []string{tag}, Description: o.description, OperationId: o.id,
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{}}},
	}}
	for _, p := range o.params {
		op.Parameters = append(op.Parameters, parameter3(p))
	}
	if o.body != nil {
		op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Required: o.bodyMust, Content: s.content3(o.consumes, o.body)}}
	}
	for _, code := range o.codes {
		op.Responses.StatusCodeResponses[code] = &spec3.Response{ResponseProps: spec3.ResponseProps{
			Description: http.StatusText(code), Content: s.content3(o.produces, o.answer),
		}}
	}
	op.Responses.StatusCodeResponses[http.StatusUnauthorized] = &spec3.Response{ResponseProps: spec3.ResponseProps{Description: http.StatusText(http.StatusUnauthorized)}}
	op.Extensions = o.extensions()
	return op
}

func (o *operation) extensions() spec.Extensions {
	if o.action == "" {
		return nil
	}
	return spec.Extensions{
		extensionAction: o.action,
		extensionGVK:    map[string]any{"group": o.gvk.Group, "version": o.gvk.Version, "kind": o.gvk.Kind},
	}
}

func (s *schemas) content3(media []string, value any) map[string]*spec3.MediaType {
	content := map[string]*spec3.MediaType{}
	for _, m := range media {
		content[m] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: s.schemaOf(value)}}
	}
	return content
}

// schemaOf returns a reference to the definition of a type; nil means plain text.
func (s *schemas) schemaOf(value any) *spec.Schema {
	if value == nil {
		return spec.StringProperty()
	}
	if name, ok := value.(definition); ok {
		return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: s.ref(string(name))}}
	}
	return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: s.ref(s.addType(value))}}
}
