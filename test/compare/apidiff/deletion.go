package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// stale writes the object with preconditions: another revision, another uid, or none.
func (c *scenario) stale() {
	field := oneOf(c.r, []string{"resourceVersion", "resourceVersion", "uid"})
	value := oneOf(c.r, []any{"1", "", "0", "x", "-1", "99999999", "a-b", nil, 5})
	method := oneOf(c.r, []string{http.MethodPut, http.MethodPatch, http.MethodPatch})
	how := fmt.Sprintf("%s %s=%v", method, field, value)
	query := oneOf(c.r, []string{"", "?dryRun=All", "?fieldValidation=Strict"})
	if method == http.MethodPatch {
		media := oneOf(c.r, []string{"application/merge-patch+json", "application/strategic-merge-patch+json"})
		body := map[string]any{"metadata": map[string]any{field: value, "labels": map[string]any{"stale": "yes"}}}
		c.both("stale patch", how, func(int) request { return c.write(method, c.path()+query, body, media) })
		return
	}
	c.both("stale update", how, func(i int) request {
		obj := clone(c.last[i]).(map[string]any)
		obj["metadata"].(map[string]any)[field] = value
		return c.write(method, c.path()+query, obj, "application/json")
	})
}

// conditions returns preconditions of a deletion, with each side's own uid and revision.
func (c *scenario) conditions(side int, which int) map[string]any {
	meta := c.last[side]["metadata"]
	return []map[string]any{
		{"uid": dig(meta, "uid")}, {"resourceVersion": dig(meta, "resourceVersion")}, {"uid": dig(meta, "uid"), "resourceVersion": dig(meta, "resourceVersion")},
		{"uid": "other"}, {"resourceVersion": "1"}, {"resourceVersion": "x"}, {"uid": "", "resourceVersion": ""}, {"uid": dig(meta, "uid"), "resourceVersion": "1"}, {},
	}[which]
}

// deleteIf deletes with preconditions, mostly as a dry run.
func (c *scenario) deleteIf() {
	which, dry := c.r.IntN(9), c.r.IntN(4) > 0
	how := fmt.Sprintf("conditions %d, dry %v", which, dry)
	more := oneOf(c.r, []string{"", "", "gracePeriodSeconds=0", "propagationPolicy=Orphan", "propagationPolicy=Foreground", "orphanDependents=true", "orphanDependents=false", "gracePeriodSeconds=7"})
	c.both("delete if", how+" "+more, func(i int) request {
		body := map[string]any{"preconditions": c.conditions(i, which)}
		if dry {
			body["dryRun"] = []any{"All"}
		}
		return c.write(http.MethodDelete, c.path()+"?"+more, body, "application/json")
	})
}

// withFinalizer adds a finalizer to the object, deletes it, and tries operations until the
// finalizer is removed.
func (c *scenario) withFinalizer() {
	merge := func(what string, body string) int {
		return c.both(what, body, func(int) request {
			return request{method: http.MethodPatch, path: c.path(), contentType: "application/merge-patch+json", body: []byte(body)}
		})
	}
	holder := oneOf(c.r, []string{`["a.example/held"]`, `["a.example/held","b.example/too"]`, `["orphan"]`, `["foregroundDeletion"]`, `["a.example/held","foregroundDeletion"]`})
	if merge("hold", `{"metadata":{"finalizers":`+holder+`}}`) != http.StatusOK {
		return
	}
	remove := func() {
		body := oneOf(c.r, []string{"", `{"gracePeriodSeconds":0}`, `{"propagationPolicy":"Foreground"}`, `{"propagationPolicy":"Orphan"}`, `{"propagationPolicy":"Background"}`, `{"orphanDependents":true}`, `{"orphanDependents":false}`, `{"gracePeriodSeconds":5}`})
		c.both("delete held", holder+" "+body, func(int) request {
			return request{method: http.MethodDelete, path: c.path(), contentType: "application/json", body: []byte(body)}
		})
	}
	remove()
	for range 1 + c.r.IntN(4) {
		oneOf(c.r, []func(){
			remove, c.update, c.status, c.stale, c.table, c.read,
			func() { merge("held", `{"metadata":{"finalizers":["a.example/held","c.example/new"]}}`) },
			func() { merge("held", `{"metadata":{"deletionTimestamp":null}}`) },
			func() { merge("held", `{"metadata":{"deletionGracePeriodSeconds":9}}`) },
			func() { merge("held", `{"metadata":{"labels":{"held":"yes"}}}`) },
		})()
	}
	merge("let go", `{"metadata":{"finalizers":null}}`)
	c.both("get after delete", "", func(int) request { return request{method: http.MethodGet, path: c.path()} })
}

// deleteAll deletes this case's objects as a collection, with various options.
func (c *scenario) deleteAll() {
	query := url.Values{"labelSelector": {oneOf(c.r, []string{"case=" + c.name, "case in (" + c.name + ")", "case=" + c.name + ",other"})}}
	switch c.r.IntN(6) {
	case 0:
		query.Set("fieldSelector", oneOf(c.r, []string{"metadata.name=" + c.name, "metadata.name!=" + c.name, "metadata.name=none", "unknown=x", "metadata.namespace=" + c.namespace}))
	case 1:
		query.Set("dryRun", "All")
	case 2:
		query.Set(oneOf(c.r, []string{"propagationPolicy", "gracePeriodSeconds", "orphanDependents"}), oneOf(c.r, []string{"Background", "Orphan", "0", "true", "Bad", "5"}))
	case 3:
		query.Set(oneOf(c.r, []string{"resourceVersion", "resourceVersionMatch", "limit", "timeoutSeconds"}), oneOf(c.r, []string{"0", "1", "Exact", "NotOlderThan"}))
	}
	body := oneOf(c.r, []string{"", "", `{"preconditions":{"uid":"other"}}`, `{"preconditions":{"resourceVersion":"1"}}`, `{"dryRun":["All"]}`, `{"propagationPolicy":"Foreground","orphanDependents":true}`, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`, `{"kind":"DeleteOptions","apiVersion":"` + c.apiVersion() + `"}`, `{"unknown":1}`})
	accept := oneOf(c.r, []string{"", "", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/yaml", mediaProtobuf})
	c.both("deletecollection", query.Encode()+" "+body+" "+accept, func(int) request {
		return request{method: http.MethodDelete, path: c.entry.collection(c.entry.version, c.namespace) + "?" + query.Encode(), contentType: "application/json", accept: accept, body: []byte(body)}
	})
	c.both("list after", "", func(int) request {
		return request{method: http.MethodGet, path: c.entry.collection(c.entry.version, c.namespace) + "?labelSelector=case%3D" + c.name}
	})
}

func (c *scenario) apiVersion() string {
	return strings.TrimPrefix(c.entry.group+"/"+c.entry.version, "/")
}
