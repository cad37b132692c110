package rest

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// checkRoute checks a request for a built-in kind before its content: first its path, then its
// method, then the media types of a patch and of the answer.
func (c *Call) checkRoute() error {
	path, method := c.route()
	proxy := c.Info.Subresource == "proxy"
	switch {
	case !path:
		return wire.ErrPathNotFound
	case proxy && c.R.Method == http.MethodOptions:
		// The target answers OPTIONS itself; without a verb, only users who may do everything get
		// here.
		return nil
	case !method, c.R.Method == http.MethodHead && !proxy:
		return wire.ErrMethodNotAllowed
	case proxy:
		return nil
	case c.Info.Verb == "patch":
		if _, err := patchType(c.R); err != nil {
			return err
		}
	}
	if sub, ok := c.Endpoint.Kind.Subresource(c.Info.Subresource); ok && sub.Connect || wire.AcceptsAny(c.R.Header.Get("Accept"), wire.MediaJSON, wire.MediaYAML, wire.MediaProtobuf) {
		return nil
	}
	if c.Info.Verb == "list" || c.Info.Verb == "watch" {
		return wire.NotAcceptableOf(wire.AllMedia + ", " + wire.StreamMedia)
	}
	return wire.NotAcceptableOf(wire.AllMedia)
}

// CheckDocument is checkRoute for a read-only document in the given media types.
func CheckDocument(r *http.Request, media ...string) error {
	switch {
	case r.Method != http.MethodGet:
		return wire.ErrMethodNotAllowed
	case r.Header.Get("Content-Type") != "" && !slices.Contains(media, wire.MediaOf(r.Header.Get("Content-Type"))):
		return verb.ErrUnsupported
	case !wire.AcceptsAny(r.Header.Get("Accept"), media...):
		return wire.NotAcceptableOf(strings.Join(media, ", "))
	}
	return nil
}

// route reports whether anything is served at the request's path, and whether it accepts the
// request's method.
func (c *Call) route() (path, method bool) {
	kind, info := c.Endpoint.Kind, c.Info
	// The name is a field selector's, not the path's.
	selected := !info.LegacyWatch && (info.Verb == "list" || info.Verb == "watch")
	named := info.Name != "" && !selected
	switch {
	case !kind.Namespaced && info.Namespace != "" && info.GVR.Resource != "namespaces":
		return false, false
	case kind.Namespaced && info.Namespace == "" && named:
		return false, false
	case info.LegacyWatch:
		return info.Subresource == "" && kind.HasVerb("watch"), c.R.Method == http.MethodGet
	case info.Subresource != "":
		sub, ok := kind.Subresource(info.Subresource)
		if !ok || info.HasRest && info.Subresource != "proxy" {
			return false, false
		}
		return true, slices.Contains(sub.Verbs, info.Verb)
	case named:
		return kind.HasVerb("get"), info.Verb != "create" && kind.HasVerb(info.Verb)
	case kind.Namespaced && info.Namespace == "": // all namespaces
		return kind.HasVerb("list"), selected && kind.HasVerb(info.Verb)
	}
	return kind.HasVerb("list") || kind.HasVerb("create"), info.Verb != "update" && info.Verb != "patch" && kind.HasVerb(info.Verb)
}

// checkCustomRoute is checkRoute for a custom kind, whose errors name the kind.
func (c *Call) checkCustomRoute() error {
	e, info := c.Endpoint, c.Info
	if e.Custom.Definition().Terminating() && info.Verb == "create" {
		return verb.ErrTerminating(e.Resource, info.Verb)
	}
	if info.Subresource != "" && !e.HasSubresource(info.Subresource) {
		return apierrors.NewNotFound(e.Resource, info.Name)
	}
	if !e.Allows(info.Verb, info.Subresource) {
		return apierrors.NewMethodNotSupported(e.Resource, info.Verb)
	}
	if info.Name == "" && info.Verb == "update" {
		return errNameRequired
	}
	return nil
}

// errNameRequired refuses to write one object by the path of the collection.
var errNameRequired = apierrors.NewBadRequest("name must be provided")

// scopeMatches reports whether the path fits the custom kind's scope: a namespaced kind needs a
// namespace, unless it is listed or watched.
func (c *Call) scopeMatches() bool {
	e, info := c.Endpoint, c.Info
	if !e.Kind.Namespaced {
		return info.Namespace == ""
	}
	return info.Namespace != "" || info.Verb == "list" || info.Verb == "watch"
}
