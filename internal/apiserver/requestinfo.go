package apiserver

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/httpstream"
)

// requestInfo is a request's path, method and query, parsed.
type requestInfo struct {
	path       string
	isResource bool
	verb       string
	gvr        schema.GroupVersionResource
	namespace  string
	name       string
	// subresource is the first part below the object; rest is the path after it (for proxy).
	subresource string
	rest        string
	hasRest     bool
	// legacyWatch is set for paths below .../watch/.
	legacyWatch bool
	// upgrade is set for a connection that changes its protocol; it lives as long as client and
	// server want.
	upgrade bool
	query   url.Values
	// apply is set for a server-side apply.
	apply bool
}

// parseRequest parses /api/v1/... and /apis/GROUP/VERSION/...; any other path is a non-resource
// request.
func parseRequest(r *http.Request) *requestInfo {
	info := &requestInfo{path: r.URL.Path, verb: strings.ToLower(r.Method), upgrade: httpstream.IsUpgradeRequest(r)}
	parts := splitPath(r.URL.Path)
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		info.gvr.Version = parts[1]
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		info.gvr.Group, info.gvr.Version = parts[1], parts[2]
		parts = parts[3:]
	default:
		return info
	}
	info.isResource = true
	if r.URL.RawQuery != "" {
		info.query = r.URL.Query()
	}
	if parts[0] == "watch" && len(parts) > 1 {
		info.legacyWatch = true
		parts = parts[1:]
	}
	parts = info.takeNamespace(parts)
	info.gvr.Resource = parts[0]
	if len(parts) > 1 {
		info.name = parts[1]
	}
	if len(parts) > 2 {
		info.subresource = parts[2]
	}
	if len(parts) > 3 {
		info.rest, info.hasRest = strings.Join(parts[3:], "/"), true
	}
	if strings.HasSuffix(r.URL.Path, "/") && info.hasRest {
		info.rest += "/"
	}
	info.takeVerb(r.Method)
	info.apply = r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch")
	return info
}

// takeNamespace removes namespaces/NAME from parts, unless the path is that of the namespace
// itself, its status or finalize.
func (i *requestInfo) takeNamespace(parts []string) []string {
	if parts[0] != "namespaces" || len(parts) < 2 {
		return parts
	}
	i.namespace = parts[1]
	if len(parts) > 2 && !(parts[2] == "status" || parts[2] == "finalize") {
		return parts[2:]
	}
	return parts
}

// takeVerb sets the verb; an unknown method has none.
func (i *requestInfo) takeVerb(method string) {
	i.verb = ""
	if i.legacyWatch {
		i.verb = "watch" // whatever the method
		return
	}
	switch method {
	case http.MethodPost:
		i.verb = "create"
	case http.MethodPut:
		i.verb = "update"
	case http.MethodPatch:
		i.verb = "patch"
	case http.MethodDelete:
		i.verb = "delete"
		if i.name == "" {
			i.verb = "deletecollection"
		}
	case http.MethodGet, http.MethodHead:
		i.verb = "get"
		switch {
		case i.name == "" && asksToWatch(i.query):
			i.verb = "watch"
			i.takeNameFromSelector()
		case i.name == "":
			i.verb = "list"
			i.takeNameFromSelector()
		}
	}
}

// takeNameFromSelector lets a user who is allowed one object list or watch it by metadata.name.
func (i *requestInfo) takeNameFromSelector() {
	if name := selectedName(i.query.Get("fieldSelector")); name != "" {
		i.name = name
	}
}

// selectedName returns the name that a field selector requires, or "".
func selectedName(raw string) string {
	if raw == "" {
		return ""
	}
	sel, err := fields.ParseSelector(raw)
	if err != nil {
		return ""
	}
	if name, ok := sel.RequiresExactMatch("metadata.name"); ok && !strings.ContainsAny(name, "/%") {
		return name
	}
	return ""
}

func splitPath(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// asksToWatch reports whether the parameter watch is present and is not "false" or "0".
func asksToWatch(query url.Values) bool {
	if !query.Has("watch") {
		return false
	}
	no := strings.ToLower(query.Get("watch"))
	return no != "false" && no != "0"
}

func isTrue(v string) bool {
	return v == "true" || v == "1" || v == "True" || v == "TRUE" || v == "t" || v == "T"
}
