package main

import (
	"net/http"

	"sigs.k8s.io/yaml"
)

// managers makes several managers apply parts of the object. They conflict, take over fields by
// force, share fields and give them up.
func (c *scenario) managers() {
	for range 2 + c.r.IntN(4) {
		c.applied()
	}
	c.both("get", "after applies", func(int) request { return request{method: http.MethodGet, path: c.path()} })
}

func (c *scenario) applied() {
	name := dig(c.last[0]["metadata"], "name")
	meta := map[string]any{"name": name}
	obj := map[string]any{"apiVersion": c.entry.object["apiVersion"], "kind": c.entry.kind, "metadata": meta}
	switch c.r.IntN(10) {
	case 0, 1, 2:
		meta["labels"] = map[string]any{oneOf(c.r, []string{"x", "y", "case"}): oneOf(c.r, []any{"1", "2", c.name, nil, ""})}
	case 3:
		meta["annotations"] = map[string]any{oneOf(c.r, []string{"x", "note"}): oneOf(c.r, []any{"1", "2"})}
	case 4:
		meta["finalizers"] = oneOf(c.r, []any{[]any{"a.example/f"}, []any{"a.example/f", "b.example/g"}, []any{}, []any{"a.example/f", "a.example/f"}})
	case 5:
		meta["ownerReferences"] = oneOf(c.r, []any{[]any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}}, []any{map[string]any{"uid": "u"}}, []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "v", "controller": true}}})
	case 6:
		meta[oneOf(c.r, []string{"resourceVersion", "uid", "generation", "managedFields", "creationTimestamp", "namespace", "generateName"})] = oneOf(c.r, []any{"1", []any{}, "2024-01-01T00:00:00Z", c.namespace, 1})
	case 7, 8:
		for k, v := range clone(c.entry.object).(map[string]any) {
			if k != "metadata" && k != "status" {
				obj[k] = v
			}
		}
		e := c.pick(obj, c.specFields())
		e.remove = true
		e.apply(obj)
		meta["name"] = name
	}
	path := c.path()
	if status := c.entry.object["status"]; status != nil && c.r.IntN(4) == 0 {
		obj["status"] = clone(status)
		path += oneOf(c.r, []string{"/status", "/status", ""})
	}
	body := []byte(compact(obj))
	if text, err := yaml.JSONToYAML(body); err == nil && c.r.IntN(3) == 0 {
		body = text
	}
	query := "?fieldManager=" + oneOf(c.r, []string{"one", "two", "apidiff"}) + oneOf(c.r, []string{"", "", "&force=true", "&force=false"}) + oneOf(c.r, []string{"", "", "&dryRun=All"}) + c.fieldValidation()
	c.both("applied", query, func(int) request {
		return request{method: http.MethodPatch, path: path + query, contentType: "application/apply-patch+yaml", body: body}
	})
}
