package openapi

import (
	"net/http"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// document2 returns the OpenAPI v2 document of routes.
func document2(s *schemas, routes []route, version string) *spec.Swagger {
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0",
		Info:    &spec.Info{InfoProps: spec.InfoProps{Title: title, Version: version}},
		Paths:   &spec.Paths{Paths: map[string]spec.PathItem{}},
		SecurityDefinitions: spec.SecurityDefinitions{securityScheme: &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
			Type: "apiKey", Description: "Bearer Token authentication", Name: "authorization", In: "header",
		}}},
		Security: []map[string][]string{{securityScheme: {}}},
	}}
	for _, r := range routes {
		item := spec.PathItem{}
		for _, p := range r.params {
			item.Parameters = append(item.Parameters, parameter2(p))
		}
		for i := range r.ops {
			*methodOf2(&item, r.ops[i].method) = s.operation2(&r.ops[i], r.tag)
		}
		doc.Paths.Paths[r.path] = item
	}
	doc.Definitions = spec.Definitions(s.done)
	return doc
}

func methodOf2(p *spec.PathItem, method string) **spec.Operation {
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

func parameter2(p parameter) spec.Parameter {
	return spec.Parameter{
		SimpleSchema:      spec.SimpleSchema{Type: p.kind},
		CommonValidations: spec.CommonValidations{UniqueItems: true},
		ParamProps:        spec.ParamProps{Name: p.name, In: p.in, Description: p.description, Required: p.in == "path"},
	}
}

func (s *schemas) operation2(o *operation, tag string) *spec.Operation {
	op := &spec.Operation{OperationProps: spec.OperationProps{
		Tags: []string{tag}, Description: o.description, ID: o.id, Consumes: o.consumes, Produces: o.produces, Schemes: []string{"https"},
		Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{}}},
	}}
	if o.body != nil {
		op.Parameters = append(op.Parameters, spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: o.bodyMust, Schema: s.schemaOf(o.body)}})
	}
	for _, p := range o.params {
		op.Parameters = append(op.Parameters, parameter2(p))
	}
	for _, code := range o.codes {
		op.Responses.StatusCodeResponses[code] = spec.Response{ResponseProps: spec.ResponseProps{Description: http.StatusText(code), Schema: s.schemaOf(o.answer)}}
	}
	op.Responses.StatusCodeResponses[http.StatusUnauthorized] = spec.Response{ResponseProps: spec.ResponseProps{Description: http.StatusText(http.StatusUnauthorized)}}
	op.Extensions = o.extensions()
	return op
}
