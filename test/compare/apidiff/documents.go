package main

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// compareDocuments compares what clients learn about the API: groups, versions, resources with
// verbs and names, and schemas. Each document counts as one request.
func compareDocuments(ctx context.Context, sides pair, r *report) error {
	paths := []string{"/api", "/apis", "/.well-known/openid-configuration", "/healthz", "/livez", "/readyz/ping", "/nowhere", "/apis/nowhere", "/apis/apps/v9", "/api/v2", "/api/v1/nowhere"}
	a, err := sides[0].send(ctx, request{method: http.MethodGet, path: "/apis"})
	if err != nil {
		return err
	}
	groups, _ := dig(a.object, "groups").([]any)
	documents := []string{"/api/v1"}
	for _, g := range groups {
		name, _ := dig(g, "name").(string)
		paths = append(paths, "/apis/"+name)
		list, _ := dig(g, "versions").([]any)
		for _, v := range list {
			at, _ := dig(v, "groupVersion").(string)
			documents = append(documents, "/apis/"+at)
		}
	}
	for _, path := range documents {
		paths = append(paths, path+"/watch", path+"/watch/", path+"/watch/nowhere", path+"/namespaces", path+"/namespaces/default")
	}
	if err := compareFormats(ctx, sides, r); err != nil {
		return err
	}
	for _, path := range append(paths, documents...) {
		if err := compareDocument(ctx, sides, r, path, ""); err != nil {
			return err
		}
	}
	aggregated := "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, path := range []string{"/api", "/apis"} {
		if err := compareDocument(ctx, sides, r, path, aggregated); err != nil {
			return err
		}
	}
	for _, path := range documents {
		if err := compareDocument(ctx, sides, r, "/openapi/v3"+path, ""); err != nil {
			return err
		}
	}
	return compareDocument(ctx, sides, r, "/openapi/v2", "")
}

// compareFormats requests documents in many formats and by many methods. Of successful answers,
// only the encoding is compared.
func compareFormats(ctx context.Context, sides pair, r *report) error {
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
	for _, path := range []string{"/openapi/v3", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/openapi/v3/nowhere", "/openapi/v2", "/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/livez", "/readyz", "/livez/ping"} {
		for _, accept := range append(accepts, openapiAccepts...) {
			if err := compareFormat(ctx, sides, r, http.MethodGet, path, accept); err != nil {
				return err
			}
		}
		for _, method := range methods {
			if err := compareFormat(ctx, sides, r, method, path, "application/json"); err != nil {
				return err
			}
		}
	}
	return nil
}

var openapiAccepts = []string{
	"application/com.github.proto-openapi.spec.v3@v1.0+protobuf", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
	"application/json;q=0.5,application/com.github.proto-openapi.spec.v3.v1.0+protobuf", "text/html, */*;q=0.1", "application/json;q=0",
}

func compareFormat(ctx context.Context, sides pair, r *report, method, path, accept string) error {
	asked := request{method: method, path: path, accept: accept, exactAccept: true, brief: true}
	var answers [2]*answer
	for i, s := range sides {
		a, err := s.send(ctx, asked)
		if err != nil {
			return err
		}
		answers[i] = a
	}
	r.add("format "+method+" "+path, compare(answers[0], answers[1]), func() string { return "  " + method + " " + path + " " + accept })
	return nil
}

func compareDocument(ctx context.Context, sides pair, r *report, path, accept string) error {
	var answers [2]*answer
	for i, s := range sides {
		a, err := s.send(ctx, request{method: http.MethodGet, path: path, accept: accept})
		if err != nil {
			return err
		}
		byName(a.object)
		answers[i] = a
	}
	differences := compare(answers[0], answers[1])
	if strings.HasPrefix(path, "/openapi/") {
		path = path[:len("/openapi/v3")] + "/*"
		for i := range differences {
			differences[i].shape = schemaPlace.ReplaceAllString(differences[i].shape, "$1.*")
		}
	}
	r.add("GET "+path, differences, func() string { return "  GET " + path + " " + accept })
	return nil
}

// schemaPlace matches the name of a schema, field or path in an OpenAPI document.
var schemaPlace = regexp.MustCompile(`(\.schemas|\.definitions|\.properties)\.[A-Za-z0-9._$-]*?[A-Za-z0-9$-]+\b|(\.paths)\./[^ .]*`)

// byName turns lists of named things into maps, so that one more or less is one difference. It
// changes v.
func byName(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for k, x := range m {
		list, ok := x.([]any)
		if !ok {
			m[k] = byName(x)
			continue
		}
		named := map[string]any{}
		for _, item := range list {
			for _, key := range []string{"name", "resource", "version", "subresource", "metadata"} {
				name, ok := dig(item, key).(string)
				if key == "metadata" {
					name, ok = dig(dig(item, key), "name").(string)
				}
				if ok {
					named[name] = byName(item)
					break
				}
			}
		}
		if len(named) == len(list) && len(list) > 0 {
			m[k] = named
		} else if texts, ok := allText(list); ok && strings.HasSuffix(k, "s") {
			slices.Sort(texts)
			m[k] = texts
		}
	}
	return m
}

func allText(list []any) ([]string, bool) {
	var out []string
	for _, x := range list {
		s, ok := x.(string)
		if !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, len(out) > 0
}
