package main

import (
	"net/http"
	"strings"
)

// absent writes, patches and deletes an object that does not exist, and its subresources. An update
// creates some kinds, an apply creates all, and preconditions count. Created objects are removed at
// once.
func (c *scenario) absent() {
	steps := []func(map[string]any, string){c.absentPut, c.absentPut, c.absentPatch, c.absentApply, c.absentApply}
	if !c.bodies {
		steps = append(steps, c.absentDelete, c.absentDelete, c.absentPart)
	}
	for range 1 + c.r.IntN(4) {
		obj := clone(c.entry.object).(map[string]any)
		meta := obj["metadata"].(map[string]any)
		meta["name"], meta["labels"] = c.name, map[string]any{"case": c.name}
		path := c.entry.collection(c.entry.version, c.namespace) + "/" + c.name
		oneOf(c.r, steps)(obj, path)
		c.remove()
		c.last = [2]map[string]any{}
	}
}

// conditioned sets preconditions in an object's metadata, or fields that only the server sets.
func (c *scenario) conditioned(obj map[string]any) (how string) {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return ""
	}
	set := func(field string, value any) {
		meta[field] = value
		how += field + "=" + short(value) + " "
	}
	switch c.r.IntN(8) {
	case 0, 1:
		set("uid", oneOf(c.r, []any{"", "x", "7a2d6e1c-6a0f-4d42-9a0c-1f2f3a4b5c6d", nil}))
	case 2, 3:
		set("resourceVersion", oneOf(c.r, []any{"", "0", "1", "99999999", "x", "-1", nil}))
	case 4:
		set("uid", oneOf(c.r, []any{"", "7a2d6e1c-6a0f-4d42-9a0c-1f2f3a4b5c6d"}))
		set("resourceVersion", oneOf(c.r, []any{"", "0", "1", "x"}))
	case 5:
		field := oneOf(c.r, []string{"creationTimestamp", "deletionTimestamp", "generation", "deletionGracePeriodSeconds", "selfLink", "generateName", "namespace", "name", "managedFields", "finalizers"})
		set(field, map[string]any{
			"creationTimestamp": "2024-01-01T00:00:00Z", "deletionTimestamp": "2024-01-01T00:00:00Z", "generation": 7, "deletionGracePeriodSeconds": 3, "selfLink": "/x", "generateName": "gen-",
			"namespace": "elsewhere", "name": oneOf(c.r, []any{"other", "", nil}), "managedFields": []any{}, "finalizers": []any{"a.example/f"},
		}[field])
	}
	return how
}

// absentPath returns the path of an object that does not exist, or of something below it.
func (c *scenario) absentPath(path string) string {
	parts := append([]string{"", "", "", "", "/status", "/status", "/scale", "/nothing"}, parts[c.entry.kind]...)
	if part := oneOf(c.r, parts); part != "" {
		return path + "/" + strings.TrimPrefix(part, "/")
	}
	return path
}

func (c *scenario) absentQuery() string {
	query := "?" + c.fieldValidation()
	if dryOnly[c.entry.kind] || c.r.IntN(2) == 0 {
		query += "&dryRun=All"
	}
	return query
}

func (c *scenario) absentPut(obj map[string]any, path string) {
	how := ""
	if c.r.IntN(4) == 0 {
		how = c.edits(obj) + "; "
	}
	how += c.conditioned(obj)
	path = c.absentPath(path) + c.absentQuery()
	c.both("absent put", how, func(int) request { return c.write(http.MethodPut, path, obj, "application/json") })
}

func (c *scenario) absentPatch(_ map[string]any, path string) {
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"absent": "yes"}}}
	how := c.conditioned(patch)
	media := oneOf(c.r, []string{"application/merge-patch+json", "application/strategic-merge-patch+json", "application/json-patch+json"})
	var body any = patch
	if media == "application/json-patch+json" {
		body = []any{map[string]any{"op": oneOf(c.r, []string{"add", "test", "remove"}), "path": "/metadata/labels", "value": map[string]any{}}}
	}
	path = c.absentPath(path) + c.absentQuery()
	c.both("absent patch", how, func(int) request { return c.write(http.MethodPatch, path, body, media) })
}

func (c *scenario) absentApply(obj map[string]any, path string) {
	how := ""
	if c.r.IntN(4) == 0 {
		how = c.edits(obj) + "; "
	}
	how += c.conditioned(obj)
	path = c.absentPath(path) + c.absentQuery() + oneOf(c.r, []string{"&fieldManager=m", "&fieldManager=m&force=true", ""})
	c.both("absent apply", how, func(int) request {
		return c.write(http.MethodPatch, path, obj, "application/apply-patch+yaml")
	})
}

func (c *scenario) absentDelete(_ map[string]any, path string) {
	body := oneOf(c.r, []string{"", "", `{}`, `{"preconditions":{"uid":"x"}}`, `{"preconditions":{"resourceVersion":"1"}}`, `{"preconditions":{"uid":"x","resourceVersion":"x"}}`, `{"gracePeriodSeconds":-1}`, `{"propagationPolicy":"Bad"}`,
		`{"propagationPolicy":"Foreground","orphanDependents":true}`, `{"dryRun":["All"]}`, `{"dryRun":["Some"]}`, `{"kind":"DeleteOptions","apiVersion":"a/b/c"}`, `{"kind":"DeleteOptions","apiVersion":"v2"}`,
		`{"kind":"DeleteOptions","apiVersion":"` + c.apiVersion() + `"}`, `{"kind":"DeleteOptions"}`, `{"apiVersion":"v1"}`, `{"apiVersion":"a/b/c"}`, `{"kind":"` + c.entry.kind + `","apiVersion":"` + c.apiVersion() + `"}`, `{"kind":1}`, `[`, `null`, `{"unknown":1}`})
	path = c.absentPath(path) + oneOf(c.r, []string{"", "", "?dryRun=All", "?dryRun=Some", "?gracePeriodSeconds=0", "?propagationPolicy=Orphan", "?orphanDependents=true", "?gracePeriodSeconds=x"})
	media := oneOf(c.r, []string{"application/json", "application/json", "application/yaml", ""})
	c.both("absent delete", body+" "+media, func(int) request {
		return request{method: http.MethodDelete, path: path, contentType: media, body: []byte(body)}
	})
}

// absentPart reads or writes subresources of an object that does not exist.
func (c *scenario) absentPart(_ map[string]any, path string) {
	name := oneOf(c.r, append([]string{"status", "scale", "nothing"}, parts[c.entry.kind]...))
	method := oneOf(c.r, []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete})
	body := oneOf(c.r, bodies[name])
	media := "application/json"
	if method == http.MethodPatch {
		media = oneOf(c.r, []string{"application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"})
	}
	query := oneOf(c.r, []string{"", "?dryRun=All", "?dryRun=All&fieldManager=m&force=true", "?fieldValidation=Strict", queries[name]})
	if dryOnly[c.entry.kind] && !strings.Contains(query, "dryRun") {
		query = "?dryRun=All"
	}
	c.both("absent part", method+" "+body, func(int) request {
		return request{method: method, path: path + "/" + name + query, contentType: media, body: []byte(body)}
	})
}
