package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errNoSuchPath is a 404 of the path, not of the object.
var errNoSuchPath = apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "the server could not find the requested resource", 0, false)

// errOtherNamespace refuses an object with another namespace than the path.
var errOtherNamespace = apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")

// errMethod is upstream's 405.
var errMethod = apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "",
	"the server does not allow this method on the requested resource", 0, false)

// checkRoute checks a request for a built-in kind before its content: first its path, then its
// method, then the media types of a patch and of the answer.
func (c *call) checkRoute() error {
	path, method := c.route()
	proxy := c.info.subresource == "proxy"
	switch {
	case !path:
		return errNoSuchPath
	case proxy && c.r.Method == http.MethodOptions:
		// The target answers OPTIONS itself; without a verb, only users who may do everything get
		// here.
		return nil
	case !method, c.r.Method == http.MethodHead && !proxy:
		return errMethod
	case proxy:
		return nil
	case c.info.verb == "patch":
		if _, err := patchType(c.r); err != nil {
			return err
		}
	}
	if sub, ok := c.endpoint.kind.Subresource(c.info.subresource); ok && sub.Connect || offered(c.r.Header.Get("Accept"), mediaJSON, mediaYAML, mediaProtobuf) {
		return nil
	}
	if c.info.verb == "list" || c.info.verb == "watch" {
		return notOffered(allMedia + ", " + streamMedia)
	}
	return notOffered(allMedia)
}

// checkDocument is checkRoute for a read-only document in the given media types.
func checkDocument(r *http.Request, media ...string) error {
	switch {
	case r.Method != http.MethodGet:
		return errMethod
	case r.Header.Get("Content-Type") != "" && !slices.Contains(media, mediaOf(r.Header.Get("Content-Type"))):
		return errUnsupported
	case !offered(r.Header.Get("Accept"), media...):
		return notOffered(strings.Join(media, ", "))
	}
	return nil
}

// route reports whether anything is served at the request's path, and whether it accepts the
// request's method.
func (c *call) route() (path, method bool) {
	kind, info := c.endpoint.kind, c.info
	// The name is a field selector's, not the path's.
	selected := !info.legacyWatch && (info.verb == "list" || info.verb == "watch")
	named := info.name != "" && !selected
	switch {
	case !kind.Namespaced && info.namespace != "" && info.gvr.Resource != "namespaces":
		return false, false
	case kind.Namespaced && info.namespace == "" && named:
		return false, false
	case info.legacyWatch:
		return info.subresource == "" && kind.HasVerb("watch"), c.r.Method == http.MethodGet
	case info.subresource != "":
		sub, ok := kind.Subresource(info.subresource)
		if !ok || info.hasRest && info.subresource != "proxy" {
			return false, false
		}
		return true, slices.Contains(sub.Verbs, info.verb)
	case named:
		return kind.HasVerb("get"), info.verb != "create" && kind.HasVerb(info.verb)
	case kind.Namespaced && info.namespace == "": // all namespaces
		return kind.HasVerb("list"), selected && kind.HasVerb(info.verb)
	}
	return kind.HasVerb("list") || kind.HasVerb("create"), info.verb != "update" && info.verb != "patch" && kind.HasVerb(info.verb)
}

// checkCustomRoute is checkRoute for a custom kind, whose errors name the kind.
func (c *call) checkCustomRoute() error {
	e, info := c.endpoint, c.info
	if e.custom.Definition().Terminating() && info.verb == "create" {
		return errTerminating(e.resource, info.verb)
	}
	if info.subresource != "" && !e.hasSubresource(info.subresource) {
		return apierrors.NewNotFound(e.resource, info.name)
	}
	if !e.allows(info.verb, info.subresource) {
		return apierrors.NewMethodNotSupported(e.resource, info.verb)
	}
	if info.name == "" && info.verb == "update" {
		return errNoName
	}
	return nil
}

// errNoName refuses to write one object by the path of the collection.
var errNoName = apierrors.NewBadRequest("name must be provided")

// reaches reports whether the path fits the custom kind's scope: a namespaced kind needs a
// namespace, unless it is listed or watched.
func (c *call) reaches() bool {
	e, info := c.endpoint, c.info
	if !e.kind.Namespaced {
		return info.namespace == ""
	}
	return info.namespace != "" || info.verb == "list" || info.verb == "watch"
}

// errTerminating refuses new objects of a kind that is being removed.
func errTerminating(resource schema.GroupResource, verb string) error {
	err := apierrors.NewMethodNotSupported(resource, verb)
	err.ErrStatus.Message = verb + " not allowed while custom resource definition is terminating"
	return err
}
