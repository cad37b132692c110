package apiserver

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/knarr-project/knarr/internal/auth"
)

// call is one HTTP request for a resource.
type call struct {
	*operation
	w    http.ResponseWriter
	r    *http.Request
	info *requestInfo
	f    format

	warned sync.Map   // texts of warnings already sent
	mu     sync.Mutex // guards the header while a collection is deleted by several goroutines
}

// serveResource carries out an authorized request for a resource.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request, info *requestInfo, user auth.User) {
	e, ok := s.endpoints.find(info.gvr)
	if !ok {
		if s.endpoints.serves(info.gvr.GroupVersion()) {
			respondError(w, jsonFormat, errNoSuchPath)
			return
		}
		notFoundPath(w)
		return
	}
	c := &call{w: w, r: r, info: info, f: jsonFormat}
	if r.Method == http.MethodHead && info.subresource != "proxy" && e.custom == nil {
		respondError(w, jsonFormat, errMethod) // as upstream: of what is built in there is only GET
		return
	}
	c.operation = &operation{
		server: s, endpoint: e, user: user, verb: info.verb, namespace: info.namespace, name: info.name,
		subresource: info.subresource, gvk: e.gvk, warn: c.warnHeader,
	}
	if !e.kind.Namespaced {
		c.namespace = ""
	}
	if text, ok := deprecated[e.gvr]; ok {
		c.warn(text)
		s.metrics.deprecated.WithLabelValues(e.gvr.Group, e.gvr.Version, e.gvr.Resource, info.subresource, "").Set(1)
	}
	if e.custom != nil {
		if !c.reaches() {
			notFoundPath(w)
			return
		}
		if text := e.custom.DeprecationWarning(); text != "" {
			c.warn(text)
		}
	}
	if err := c.check(); err != nil {
		respondError(w, jsonFormat, err)
		return
	}
	if sub, ok := e.kind.Subresource(info.subresource); ok {
		if sub.Kind.GroupKind() != e.gvk.GroupKind() { // else the subresource shows the object, in the version asked for
			c.gvk = sub.Kind
		}
		if sub.Connect {
			s.connect(c)
			return
		}
	}
	var err error
	if e.custom != nil {
		c.f, err = negotiateCustom(r, c.transforms(), info.verb == "watch")
	} else {
		c.f, err = negotiate(r, c.transforms(), info.verb == "watch")
	}
	if err == nil {
		if err = c.serve(r.Context()); err == nil {
			return
		}
	}
	if apierrors.IsNotAcceptable(err) {
		c.f = plainFormat(r)
	}
	respondError(w, c.f, err)
}

// transforms: what is posted to be answered, not kept (reviews, bindings, evictions, tokens), has no rows.
func (c *call) transforms() transforms {
	objects := c.endpoint.kind.Object != nil || c.endpoint.custom != nil
	answered := c.info.verb == "create" && (c.subresource != "" || c.endpoint.kind.Virtual)
	return transforms{metadata: objects, table: objects && !answered, list: c.info.verb == "list" || c.info.verb == "watch", any: c.endpoint.custom != nil}
}

// check tells whether the endpoint has what the path asks for.
func (c *call) check() error {
	e, info := c.endpoint, c.info
	if e.custom != nil {
		if err := c.checkCustom(); err != nil {
			return err
		}
	}
	if info.subresource == "" {
		if !e.kind.Namespaced && info.namespace != "" && e.gvr.Resource != "namespaces" {
			return errNoSuchPath
		}
		if e.kind.Namespaced && info.namespace == "" && info.name != "" && info.verb != "list" && info.verb != "watch" {
			return errNoSuchPath
		}
		if info.verb == "create" && info.name != "" {
			if e.kind.HasVerb("get") {
				return errMethod
			}
			return errNoSuchPath
		}
		clusterWide := e.kind.Namespaced && info.namespace == ""
		if e.kind.HasVerb(info.verb) && !(clusterWide && info.verb != "list" && info.verb != "watch") {
			return nil
		}
		return errMethod
	}
	if !e.hasSubresource(info.subresource) {
		return errNoSuchPath
	}
	if info.subresource == "proxy" && c.r.Method == http.MethodOptions {
		return nil // whatever is behind a proxy answers OPTIONS itself; the request has no verb, so only who may do everything gets here
	}
	if !e.allows(info.verb, info.subresource) {
		return errMethod
	}
	return nil
}

// deprecated kinds warn whoever uses them.
var deprecated = map[schema.GroupVersionResource]string{
	{Version: "v1", Resource: "endpoints"}:         "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
	{Version: "v1", Resource: "componentstatuses"}: "v1 ComponentStatus is deprecated in v1.19+",
}

// errNoSuchPath is a 404 of the path, not of the object.
var errNoSuchPath = apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "the server could not find the requested resource", 0, false)

func (c *call) serve(ctx context.Context) error {
	switch c.info.verb {
	case "get":
		return c.serveGet(ctx)
	case "list":
		return c.serveList(ctx)
	case "watch":
		return c.serveWatch(ctx)
	case "create":
		return c.serveCreate(ctx)
	case "update":
		return c.serveUpdate(ctx)
	case "patch":
		return c.servePatch(ctx)
	case "delete":
		return c.serveDelete(ctx)
	case "deletecollection":
		return c.serveDeleteCollection(ctx)
	}
	return errMethod
}

// warnHeader tells the client something that is no error.
func (c *call) warnHeader(text string) {
	if _, again := c.warned.LoadOrStore(text, true); again {
		return
	}
	header, err := utilnet.NewWarningHeader(299, "-", text)
	if err != nil {
		return // not printable as a header
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.Header().Add("Warning", header)
}

// query decodes the URL's options with one of the generated functions of apimachinery.
func query[T any](c *call, into *T, decode func(*url.Values, *T) error) error {
	if len(c.info.query) == 0 {
		return nil
	}
	if err := decode(&c.info.query, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// respond writes the body, compressed if it is large and the client takes that.
func (c *call) respond(code int, body []byte) {
	c.recordAnswer(body)
	if zipped, ok := compress(c.r, body); ok {
		c.w.Header().Set("Content-Encoding", "gzip")
		c.w.Header().Set("Vary", "Accept-Encoding")
		respond(c.w, code, c.f, zipped)
		return
	}
	respond(c.w, code, c.f, body)
}

// respondList is respond for a list, which is written piece by piece.
func (c *call) respondList(body *listBody) error {
	if recordOf(c.w).WantsResponse() {
		whole, err := body.bytes()
		if err != nil {
			return err
		}
		c.recordAnswer(whole)
	}
	header := c.w.Header()
	header.Set("Content-Type", c.f.contentType())
	if body.size() >= compressFrom && takesGzip(c.r) {
		header.Set("Content-Encoding", "gzip")
		header.Set("Vary", "Accept-Encoding")
		c.w.WriteHeader(http.StatusOK)
		return broken(zip(c.w, body.writeTo))
	}
	header.Set("Content-Length", strconv.Itoa(body.size()))
	c.w.WriteHeader(http.StatusOK)
	return broken(body.writeTo(c.w))
}

// broken ends a connection whose answer could not be finished: the client must not take what it has got for all. Most often it
// is the client that has gone.
func broken(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// answer writes an object of the endpoint's kind, or of the subresource's own.
func (c *call) answer(code int, obj runtime.Object) error {
	var body []byte
	var err error
	switch {
	case c.gvk == c.endpoint.gvk:
		body, err = c.endpoint.encodeObject(obj, c.f)
	case c.subresource == "scale":
		body, err = c.server.endpoints.scales.encodeObject(obj, c.f)
	default:
		body, err = encodeAs(obj, c.gvk, c.f)
	}
	if err != nil {
		return err
	}
	c.respond(code, body)
	return nil
}
