package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// live creates an object, runs a few operations on it, and removes it.
func (c *scenario) live(obj map[string]any) {
	e := c.entry
	how := ""
	if c.r.IntN(3) == 0 {
		how = c.edits(obj)
	}
	path := e.collection(e.version, c.namespace)
	code := c.both("create", how, func(int) request {
		return c.write(http.MethodPost, path+"?"+c.fieldValidation()[:0], obj, "application/json")
	})
	defer c.remove()
	// Each side has generated another name.
	if code != http.StatusCreated || dig(c.last[0]["metadata"], "name") != dig(c.last[1]["metadata"], "name") {
		return
	}
	c.settled(c.path())
	steps := []func(){c.update, c.update, c.status, c.status, c.merge, c.jsonPatch, c.strategic, c.apply, c.read, c.table, c.otherVersion, c.list, c.list, c.deleteDry,
		c.negotiate, c.negotiate, c.content, c.content, c.badQuery, c.badQuery, c.wrongMethod, c.part, c.part, c.dryUpdate,
		c.stale, c.deleteIf, c.at, c.at, c.asOtherUser, c.inOtherNamespace, c.duplicateFields, c.asProtobuf, c.managers}
	if c.bodies {
		steps = []func(){c.update, c.update, c.dryUpdate, c.status, c.status, c.merge, c.jsonPatch, c.strategic, c.apply, c.stale, c.asProtobuf, c.managers}
	}
	for range 2 + c.r.IntN(5) {
		oneOf(c.r, steps)()
	}
	switch {
	case c.bodies:
	case c.err != nil || c.last[0] == nil || c.last[1] == nil:
	case c.r.IntN(12) == 0:
		c.pages()
	case c.r.IntN(16) == 0:
		c.watch()
	case c.r.IntN(8) == 0:
		c.withFinalizer()
	case c.r.IntN(8) == 0:
		c.deleteAll()
	}
	if !c.bodies && c.err == nil && c.last[0] != nil && c.last[1] != nil && c.r.IntN(3) == 0 {
		c.delete()
	}
}

// settled waits until both servers have set the conditions of a FlowSchema.
func (c *scenario) settled(path string) {
	if c.entry.kind != "FlowSchema" || c.err != nil {
		return
	}
	for i, s := range c.sides {
		err := until(c.ctx, "conditions of "+path, func() bool {
			a, err := s.send(c.ctx, request{method: http.MethodGet, path: path})
			if err != nil || a.code != http.StatusOK {
				return true
			}
			object, _ := a.object.(map[string]any)
			if path == c.path() {
				c.last[i] = object
			}
			conditions, _ := dig(object["status"], "conditions").([]any)
			return slices.ContainsFunc(conditions, func(condition any) bool {
				message, _ := dig(condition, "message").(string)
				return strings.HasPrefix(message, "This FlowSchema references the PriorityLevelConfiguration")
			})
		})
		if err != nil {
			c.err = err
		}
	}
}

// path returns the object's path.
func (c *scenario) path() string {
	name, _ := dig(c.last[1]["metadata"], "name").(string)
	return c.entry.collection(c.entry.version, c.namespace) + "/" + name
}

// edited applies the same edits to each side's current object.
func (c *scenario) edited(within ...string) (objs [2]map[string]any, how string) {
	for i := range objs {
		objs[i] = clone(c.last[i]).(map[string]any)
	}
	edits := []edit{c.pick(objs[0], within)}
	if c.r.IntN(8) == 0 {
		edits = nil // an update without a change
	}
	for _, e := range edits {
		how += e.String()
		for i := range objs {
			e.apply(objs[i])
		}
	}
	return objs, how
}

func (c *scenario) specFields() []string {
	var fields []string
	for k := range c.entry.object {
		if k != "status" && k != "apiVersion" && k != "kind" {
			fields = append(fields, k)
		}
	}
	return fields
}

func (c *scenario) update() {
	objs, how := c.edited(c.specFields()...)
	query := "?" + c.fieldValidation()
	c.both("update", how, func(i int) request {
		return c.write(http.MethodPut, c.path()+query, objs[i], "application/json")
	})
}

// dryUpdate updates as a dry run, under various managers.
func (c *scenario) dryUpdate() {
	objs, how := c.edited(c.specFields()...)
	query := "?dryRun=All" + c.fieldValidation() + oneOf(c.r, []string{"", "&fieldManager=other", "&fieldManager=%00", "&force=true"})
	c.both("update", how, func(i int) request { return c.write(http.MethodPut, c.path()+query, objs[i], "application/json") })
}

// status writes the corpus's status, edited or not.
func (c *scenario) status() {
	if c.entry.object["status"] == nil {
		c.update()
		return
	}
	status := map[string]any{"apiVersion": c.entry.object["apiVersion"], "kind": c.entry.kind, "status": clone(c.entry.object["status"])}
	how := "status"
	if c.r.IntN(3) > 0 {
		e := c.pick(status, []string{"status"})
		how = e.String()
		e.apply(status)
	}
	objs := [2]map[string]any{clone(c.last[0]).(map[string]any), clone(c.last[1]).(map[string]any)}
	if c.r.IntN(4) == 0 {
		var more string
		objs, more = c.edited("metadata")
		how += "; " + more
	}
	c.both("status", how, func(i int) request {
		objs[i]["status"] = status["status"]
		return c.write(http.MethodPut, c.path()+"/status", objs[i], "application/json")
	})
	c.settled(c.path())
}

// nested returns a document with only the value at path. Lists on the way keep their content.
func nested(path []any, value any) any {
	for i := len(path) - 1; i >= 0; i-- {
		switch key := path[i].(type) {
		case string:
			value = map[string]any{key: value}
		default:
			value = []any{value}
		}
	}
	return value
}

// patch is built from upstream's object. The request to knarr gets knarr's own values instead.
func (c *scenario) patch(side int, path string, body any, contentType string) request {
	r := c.write(http.MethodPatch, path, body, contentType)
	if side == 1 {
		r.body = own(r.body, c.last[0], c.last[1])
	}
	return r
}

func (c *scenario) merge() {
	e := c.pick(c.last[0], c.specFields())
	if e.remove {
		e.value = nil
	}
	c.both("merge", e.String(), func(i int) request {
		return c.patch(i, c.path(), nested(e.path, e.value), "application/merge-patch+json")
	})
}

func (c *scenario) strategic() {
	e := c.pick(c.last[0], c.specFields())
	if e.remove {
		e.value = nil
	}
	c.both("strategic", e.String(), func(i int) request {
		return c.patch(i, c.path(), nested(e.path, e.value), "application/strategic-merge-patch+json")
	})
}

func (c *scenario) jsonPatch() {
	e := c.pick(c.last[0], c.specFields())
	pointer := ""
	for _, p := range e.path {
		pointer += "/" + escapePointer(fmt.Sprint(p))
	}
	op := map[string]any{"op": oneOf(c.r, []string{"add", "replace", "add", "replace", "test"}), "path": pointer, "value": e.value}
	if e.remove {
		op = map[string]any{"op": "remove", "path": pointer}
	}
	c.both("json patch", e.String(), func(i int) request {
		return c.patch(i, c.path(), []any{op}, "application/json-patch+json")
	})
}

func escapePointer(s string) string {
	var out []rune
	for _, r := range s {
		switch r {
		case '~':
			out = append(out, '~', '0')
		case '/':
			out = append(out, '~', '1')
		default:
			out = append(out, r)
		}
	}
	return string(out)
}

func (c *scenario) apply() {
	obj := clone(c.entry.object).(map[string]any)
	obj["metadata"] = map[string]any{"name": dig(c.last[0]["metadata"], "name"), "labels": map[string]any{"applied": "yes"}}
	delete(obj, "status")
	e := c.pick(obj, c.specFields())
	if c.r.IntN(2) == 0 {
		e.apply(obj)
	}
	query := oneOf(c.r, []string{"?fieldManager=m&force=true", "?fieldManager=m", "?fieldManager=m&force=true", "", "?fieldManager=m&force=true&fieldValidation=Strict"})
	c.both("apply", e.String(), func(int) request {
		return c.write(http.MethodPatch, c.path()+query, obj, "application/apply-patch+yaml")
	})
}

func (c *scenario) read() {
	r := request{method: http.MethodGet, path: c.path(), accept: oneOf(c.r, []string{"", "application/yaml", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"})}
	c.both("get", r.accept, func(int) request { return r })
}

func (c *scenario) table() {
	r := request{method: http.MethodGet, path: c.path(), accept: "application/json;as=Table;g=meta.k8s.io;v=v1"}
	if c.r.IntN(2) == 0 {
		r.path += "?includeObject=" + oneOf(c.r, []string{"None", "Object", "Metadata"})
	}
	c.both("table", "", func(int) request { return r })
}

// versions lists the kinds with several versions.
var versions = map[string][]string{
	"HorizontalPodAutoscaler": {"/apis/autoscaling/v1", "/apis/autoscaling/v2"},
	"Event":                   {"/api/v1", "/apis/events.k8s.io/v1"},
}

func (c *scenario) otherVersion() {
	list := versions[c.entry.kind]
	if list == nil {
		c.read()
		return
	}
	name, _ := dig(c.last[1]["metadata"], "name").(string)
	path := oneOf(c.r, list) + "/namespaces/" + c.namespace + "/" + c.entry.resource + "/" + name
	c.both("get as "+path[:14], path, func(int) request { return request{method: http.MethodGet, path: path} })
}

func (c *scenario) list() {
	fields := []string{"metadata.name=" + fmt.Sprint(dig(c.last[0]["metadata"], "name")), "metadata.namespace=" + c.namespace, "spec.nodeName=", "type=Opaque", "status.phase=Running", "spec.unknown=a", "metadata.name", "reason=Started", "involvedObject.kind=Pod",
		"spec.unschedulable=false", "status.successful=0", "spec.clusterIP=None", "spec.signerName=a"}
	query := url.Values{}
	query.Set("labelSelector", oneOf(c.r, []string{"case=" + c.name, "case in (" + c.name + ",b)", "case", "!case", "case!=" + c.name, "case=a,b in (", "case notin (a", "Bad Key=a", "case==" + c.name + ",x"}))
	switch c.r.IntN(4) {
	case 0:
		query.Set("fieldSelector", oneOf(c.r, fields))
	case 1:
		limit := oneOf(c.r, []string{"1", "0", "-1", "x"})
		if limit == "1" && !c.entry.namespaced {
			// Other cases create objects meanwhile, so whether one page holds all is random.
			limit = "500"
		}
		query.Set("limit", limit)
	case 2:
		query.Set(oneOf(c.r, []string{"resourceVersion", "resourceVersionMatch", "continue", "timeoutSeconds", "sendInitialEvents", "allowWatchBookmarks", "unknown"}), oneOf(c.r, []string{"0", "x", "-1", "", "Exact", "NotOlderThan", "false"}))
	}
	if s := query.Get("labelSelector"); s == "case" || s == "!case" || s == "case!="+c.name {
		query.Set("labelSelector", "case="+c.name) // other cases create and delete objects
	}
	r := request{method: http.MethodGet, path: c.entry.collection(c.entry.version, c.namespace) + "?" + query.Encode()}
	if c.r.IntN(4) == 0 {
		r.accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
	}
	c.both("list", query.Encode(), func(int) request { return r })
}

func (c *scenario) deleteDry() {
	body := oneOf(c.r, []string{`{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`, `{"dryRun":["Some"]}`, `{"dryRun":["All"],"propagationPolicy":"Foreground"}`, `{"dryRun":["All"],"propagationPolicy":"Orphan","orphanDependents":true}`,
		`{"dryRun":["All"],"propagationPolicy":"Bad"}`, `{"dryRun":["All"],"gracePeriodSeconds":-1}`, `{"dryRun":["All"],"preconditions":{"uid":"a"}}`, `{"dryRun":["All"],"preconditions":{"resourceVersion":"1"}}`, `{"dryRun":["All"],"orphanDependents":true}`, `{"dryRun":["All"],"x":1}`, `{"kind":"Pod","apiVersion":"v1"}`, `[`})
	c.both("delete", body, func(int) request {
		return request{method: http.MethodDelete, path: c.path() + "?dryRun=All", contentType: "application/json", body: []byte(body)}
	})
}

func (c *scenario) delete() {
	body := oneOf(c.r, []string{"", `{"gracePeriodSeconds":0}`, `{"propagationPolicy":"Foreground"}`, `{"propagationPolicy":"Orphan"}`, `{"propagationPolicy":"Background","gracePeriodSeconds":5}`})
	path := c.path()
	c.both("delete", body, func(int) request {
		return request{method: http.MethodDelete, path: path, contentType: "application/json", body: []byte(body)}
	})
	c.both("get after delete", body, func(int) request { return request{method: http.MethodGet, path: path} })
}

// remove deletes the object on both sides, with its finalizers. The answers do not matter.
func (c *scenario) remove() {
	for i, object := range c.last {
		if name, ok := dig(object["metadata"], "name").(string); ok {
			c.removeOn(c.sides[i], name)
		}
	}
}

func (c *scenario) removeNamed(name string) {
	for _, s := range c.sides {
		c.removeOn(s, name)
	}
}

func (c *scenario) removeOn(s *server, name string) {
	path := c.entry.collection(c.entry.version, c.namespace) + "/" + name
	gone := func() bool {
		a, err := s.send(c.ctx, request{method: http.MethodDelete, path: path + "?gracePeriodSeconds=0&propagationPolicy=Background", contentType: "application/json"})
		if err != nil {
			c.err = err
			return true
		}
		return a.code == http.StatusNotFound || dig(a.object, "kind") == "Status"
	}
	if !gone() {
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": nil}})
		_, _ = s.send(c.ctx, request{method: http.MethodPatch, path: path, contentType: "application/merge-patch+json", body: patch})
		gone()
	}
}
