package wire

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/httpstream"

	"github.com/knarr-project/knarr/internal/auth"
)

// RequestAttributes describes a user's request for authorization and audit.
func RequestAttributes(user auth.User, info *RequestInfo) auth.Attributes {
	if !info.IsResource {
		return auth.Attributes{User: user, Verb: info.Verb, Path: info.Path}
	}
	a := auth.Attributes{
		User: user, Verb: info.Verb, Namespace: info.Namespace, Group: info.GVR.Group, Version: info.GVR.Version,
		Resource: info.GVR.Resource, Subresource: info.Subresource, Name: info.Name,
	}
	switch info.Verb {
	case "list", "watch", "deletecollection":
		a.FieldSelector, a.LabelSelector = info.Query.Get("fieldSelector"), info.Query.Get("labelSelector")
	}
	return a
}

// LongRunning reports whether the request has no deadline.
func (i *RequestInfo) LongRunning() bool {
	if i.Verb == "watch" || i.upgrade {
		return true
	}
	if !i.IsResource {
		// A profile lasts as long as the client asks, and a stream as long as the handler sends.
		return strings.HasPrefix(i.Path, "/debug/pprof/") || strings.HasPrefix(i.Path, "/knarr/v1/") && strings.HasSuffix(i.Path, "/watch")
	}
	switch i.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

// Scope returns the part of the cluster that a request is about.
func (i *RequestInfo) Scope() string {
	switch {
	case !i.IsResource:
		return ""
	case i.Name != "" && i.Verb != "list" && i.Verb != "watch" || i.Verb == "create":
		return "resource"
	case i.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

// RequestInfo is a request's path, method and query, parsed.
type RequestInfo struct {
	Path       string
	IsResource bool
	Verb       string
	GVR        schema.GroupVersionResource
	Namespace  string
	Name       string
	// Subresource is the first part below the object; rest is the path after it (for proxy).
	Subresource string
	Rest        string
	HasRest     bool
	// LegacyWatch is set for paths below .../watch/.
	LegacyWatch bool
	// upgrade is set for a connection that changes its protocol; it lives as long as client and
	// server want.
	upgrade bool
	Query   url.Values
	// Apply is set for a server-side apply.
	Apply bool
}

// ParseRequest parses /api/v1/... and /apis/GROUP/VERSION/...; any other path is a non-resource
// request.
func ParseRequest(r *http.Request) *RequestInfo {
	info := &RequestInfo{Path: r.URL.Path, Verb: strings.ToLower(r.Method), upgrade: httpstream.IsUpgradeRequest(r)}
	parts := SplitPath(r.URL.Path)
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		info.GVR.Version = parts[1]
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		info.GVR.Group, info.GVR.Version = parts[1], parts[2]
		parts = parts[3:]
	default:
		return info
	}
	info.IsResource = true
	if r.URL.RawQuery != "" {
		info.Query = r.URL.Query()
	}
	if parts[0] == "watch" && len(parts) > 1 {
		info.LegacyWatch = true
		parts = parts[1:]
	}
	parts = info.takeNamespace(parts)
	info.GVR.Resource = parts[0]
	if len(parts) > 1 {
		info.Name = parts[1]
	}
	if len(parts) > 2 {
		info.Subresource = parts[2]
	}
	if len(parts) > 3 {
		info.Rest, info.HasRest = strings.Join(parts[3:], "/"), true
	}
	if strings.HasSuffix(r.URL.Path, "/") && info.HasRest {
		info.Rest += "/"
	}
	info.takeVerb(r.Method)
	info.Apply = r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch")
	return info
}

// takeNamespace removes namespaces/NAME from parts, unless the path is that of the namespace
// itself, its status or finalize.
func (i *RequestInfo) takeNamespace(parts []string) []string {
	if parts[0] != "namespaces" || len(parts) < 2 {
		return parts
	}
	i.Namespace = parts[1]
	if len(parts) > 2 && !(parts[2] == "status" || parts[2] == "finalize") {
		return parts[2:]
	}
	return parts
}

// takeVerb sets the verb; an unknown method has none.
func (i *RequestInfo) takeVerb(method string) {
	i.Verb = ""
	if i.LegacyWatch {
		i.Verb = "watch" // whatever the method
		return
	}
	switch method {
	case http.MethodPost:
		i.Verb = "create"
	case http.MethodPut:
		i.Verb = "update"
	case http.MethodPatch:
		i.Verb = "patch"
	case http.MethodDelete:
		i.Verb = "delete"
		if i.Name == "" {
			i.Verb = "deletecollection"
		}
	case http.MethodGet, http.MethodHead:
		i.Verb = "get"
		switch {
		case i.Name == "" && watchRequested(i.Query):
			i.Verb = "watch"
			i.takeNameFromSelector()
		case i.Name == "":
			i.Verb = "list"
			i.takeNameFromSelector()
		}
	}
}

// takeNameFromSelector lets a user who is allowed one object list or watch it by metadata.name.
func (i *RequestInfo) takeNameFromSelector() {
	if name := NameFromSelector(i.Query.Get("fieldSelector")); name != "" {
		i.Name = name
	}
}

// NameFromSelector returns the name that a field selector requires, or "".
func NameFromSelector(raw string) string {
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

// SplitPath returns the parts of a path, without leading and trailing slashes.
func SplitPath(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// watchRequested reports whether the parameter watch is present and is not "false" or "0".
func watchRequested(query url.Values) bool {
	if !query.Has("watch") {
		return false
	}
	no := strings.ToLower(query.Get("watch"))
	return no != "false" && no != "0"
}

// IsTrue reports whether a query value means true.
func IsTrue(v string) bool {
	return v == "true" || v == "1" || v == "True" || v == "TRUE" || v == "t" || v == "T"
}
