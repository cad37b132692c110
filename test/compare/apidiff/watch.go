package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// watch changes the object a few times and then requests the events since before, or opens another
// watch. Each takes a second.
func (c *scenario) watch() {
	list := c.entry.collection(c.entry.version, c.namespace)
	query := url.Values{"watch": {"1"}, "timeoutSeconds": {"1"}}
	var since [2]string
	for i := range since {
		since[i], _ = dig(c.last[i]["metadata"], "resourceVersion").(string)
	}
	for i := range 1 + c.r.IntN(3) {
		patch := oneOf(c.r, []string{`{"metadata":{"labels":{"step":"%d"}}}`, `{"metadata":{"annotations":{"step":"%d"}}}`, `{"metadata":{"labels":{"step":"%d","case":"other"}}}`})
		body := fmt.Appendf(nil, patch, i)
		c.both("merge", "a step", func(int) request {
			return request{method: http.MethodPatch, path: c.path(), contentType: "application/merge-patch+json", body: body}
		})
	}
	if c.r.IntN(2) == 0 {
		c.both("delete", "a step", func(int) request { return request{method: http.MethodDelete, path: c.path() + "?gracePeriodSeconds=0"} })
	}
	if c.r.IntN(3) > 0 {
		query.Set("labelSelector", "case="+c.name)
	} else {
		query.Set("fieldSelector", "metadata.name="+c.name)
	}
	which := "since"
	switch c.r.IntN(8) {
	case 0:
		which = "from the beginning"
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
		query.Set("allowWatchBookmarks", oneOf(c.r, []string{"true", "true", "false"}))
	case 1:
		which = "as it is"
		query.Set("resourceVersion", oneOf(c.r, []string{"0", ""}))
	case 2:
		which = "odd"
		query.Set(oneOf(c.r, []string{"resourceVersion", "resourceVersionMatch", "sendInitialEvents", "limit", "continue", "timeoutSeconds", "allowWatchBookmarks"}),
			oneOf(c.r, []string{"x", "-1", "Exact", "true", "1", "NotOlderThan"}))
	}
	path := list
	if c.r.IntN(6) == 0 {
		path = prefix(c.entry.group, c.entry.version) + "/watch" + list[len(prefix(c.entry.group, c.entry.version)):]
	}
	accept := oneOf(c.r, []string{"", "", "", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;stream=watch", "application/yaml"})
	c.both("watch", which+" "+query.Encode()+" "+accept, func(side int) request {
		q := url.Values{}
		for k, v := range query {
			q[k] = v
		}
		if which == "since" {
			q.Set("resourceVersion", since[side])
		}
		return request{method: http.MethodGet, path: path + "?" + q.Encode(), accept: accept}
	})
}

// compareEvents compares the events of two watches. If the events differ, the shape lists them. The
// load of the machine decides when upstream ends a watch at its timeout. So ours is compared only
// as far as upstream's got. late means that the time was over before the watch began; then neither
// needs any events.
func compareEvents(x, y []any, late bool) []difference {
	x, cut := inTime(x)
	if shorter := min(len(x), len(y)); late || cut && len(x) == shorter {
		x, y = x[:shorter], y[:shorter]
	}
	if a, b := eventTypes(x), eventTypes(y); a != b {
		return []difference{{"events " + a + ", ours " + b, compact(x), compact(y)}}
	}
	return compareValues(x, y, "")
}

// inTime drops upstream's last event at the timeout of a watch.
func inTime(events []any) (before []any, cut bool) {
	if n := len(events); n > 0 {
		if object := dig(events[n-1], "object"); dig(object, "reason") == "InternalError" && dig(object, "message") == "context deadline exceeded" {
			return events[:n-1], true
		}
	}
	return events, false
}

// eventTypes returns the types of the events in order, errors with their code.
func eventTypes(events []any) string {
	if len(events) == 0 {
		return "none"
	}
	types := make([]string, len(events))
	for i, e := range events {
		types[i] = fmt.Sprint(dig(e, "type"))
		if types[i] == "ERROR" {
			types[i] += fmt.Sprintf(" %v", dig(dig(e, "object"), "code"))
		}
	}
	return strings.Join(types, " ")
}
