package apiserver

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/auth"
)

// call is one HTTP request for a resource.
type call struct {
	*operation
	resources *resources
	w         http.ResponseWriter
	r         *http.Request
	info      *requestInfo
	f         format

	// Guards the header, which several goroutines use in a deletecollection, and warnings.
	mu       sync.Mutex
	warnings warnings
}

// resources serves HTTP requests for resources.
type resources struct {
	engine  *engine
	metrics *metrics
	watches *watches
	// connect serves the subresources that are streams and proxies.
	connect func(*call)
}

// serve carries out an authorized request for a resource.
func (rs *resources) serve(w *codeWriter, r *http.Request, info *requestInfo, user auth.User) {
	e, ok := rs.engine.kinds.findServed(info.gvr)
	if !ok {
		if rs.engine.kinds.hasGroup(info.gvr.Group) {
			respondError(w, plainFormat(r), errNoSuchPath)
			return
		}
		notFoundPath(w)
		return
	}
	c := &call{resources: rs, w: w, r: r, info: info, f: jsonFormat}
	c.operation = &operation{
		engine: rs.engine, endpoint: e, user: user, verb: info.verb, namespace: info.namespace, name: info.name,
		subresource: info.subresource, gvk: e.gvk, warn: c.warnHeader,
	}
	c.stopwatch = w
	if e.custom != nil && !c.reaches() {
		notFoundPath(w)
		return
	}
	if err := c.check(); err != nil {
		respondError(w, plainFormat(r), err)
		return
	}
	rs.metrics.served(w, info)
	if !e.kind.Namespaced {
		c.namespace = ""
	}
	if sub, ok := e.kind.Subresource(info.subresource); ok {
		// Otherwise the subresource shows the object in the requested version.
		if sub.Kind.GroupKind() != e.gvk.GroupKind() {
			c.gvk = sub.Kind
		}
		if sub.Connect {
			rs.connect(c)
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
	} else if info.verb == "watch" {
		err = c.unwatchable(err)
	}
	respondError(w, plainFormat(r), err)
}

// unwatchable returns the error for a watch in an unsupported format. Errors in its options come
// first.
func (c *call) unwatchable(form error) error {
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	if rv := req.opts.ResourceVersion; rv != "" {
		if _, err := parseRevision(rv); err != nil {
			return err
		}
	}
	return form
}

// check does the first checks of a request: its path, its method, and the kind's deprecation
// warning.
func (c *call) check() error {
	e := c.endpoint
	if e.custom != nil {
		text := e.custom.DeprecationWarning()
		if text != "" {
			c.warn(text)
		}
		err := c.checkCustomRoute()
		if text != "" && err == nil {
			c.usesDeprecated()
		}
		return err
	}
	if err := c.checkRoute(); err != nil {
		return err
	}
	if text, ok := deprecated[e.gvr]; ok {
		c.warn(text)
		c.usesDeprecated()
	}
	return nil
}

// usesDeprecated marks the use of a deprecated version in the audit log and the metrics.
func (c *call) usesDeprecated() {
	gvr := c.endpoint.gvr
	recordOf(c.w).Annotate("k8s.io/deprecated", "true")
	c.resources.metrics.deprecated.WithLabelValues(gvr.Group, gvr.Version, gvr.Resource, c.info.subresource, "").Set(1)
}

// transforms returns the transformations that the client may ask for. Objects that are answered but
// not kept (reviews, bindings, evictions, tokens) have no table.
func (c *call) transforms() transforms {
	objects := c.endpoint.kind.Object != nil || c.endpoint.custom != nil
	answered := c.info.verb == "create" && (c.subresource != "" || c.endpoint.kind.Virtual)
	return transforms{metadata: objects, table: objects && !answered}
}

// deprecated are the warnings for users of deprecated kinds.
var deprecated = map[schema.GroupVersionResource]string{
	{Version: "v1", Resource: "endpoints"}:         "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
	{Version: "v1", Resource: "componentstatuses"}: "v1 ComponentStatus is deprecated in v1.19+",
}

func (c *call) serve(ctx context.Context) error {
	ctx, span := c.span(ctx)
	defer span.End()
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

// warnHeader adds a warning to the response, unless it is already there.
func (c *call) warnHeader(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warnings.known == nil { // keep the warnings about the credentials
		// Written by this server, so they parse.
		said, _ := utilnet.ParseWarningHeaders(c.w.Header().Values("Warning"))
		for _, s := range said {
			c.warnings.add(s.Text)
		}
	}
	if c.warnings.add(text) {
		c.w.Header()["Warning"] = c.warnings.headers()
	}
}

// query decodes the URL's options with one of apimachinery's generated functions.
func query[T any](c *call, into *T, decode func(*url.Values, *T) error) error {
	if len(c.info.query) == 0 {
		return nil
	}
	if err := decode(&c.info.query, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// respond writes the body, compressed if it is large and the client accepts gzip.
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

// respondList is respond for a list, which is written in pieces.
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
		return broken(body.zipTo(c.w))
	}
	header.Set("Content-Length", strconv.Itoa(body.size()))
	c.w.WriteHeader(http.StatusOK)
	return broken(body.sendTo(c.w))
}

// broken aborts the connection of an answer that could not be finished, so that the client does not
// take the part for the whole. Usually the client has already gone.
func broken(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// answer writes an object of the endpoint's kind, or of the subresource's own.
func (c *call) answer(ctx context.Context, code int, obj runtime.Object) error {
	var body []byte
	var err error
	span, since := c.serializing(ctx), time.Now()
	defer span.End()
	switch {
	case c.gvk == c.endpoint.gvk:
		body, err = c.endpoint.encodeObject(obj, c.f)
	case c.subresource == "scale":
		body, err = c.engine.kinds.scales.encodeObject(obj, c.f)
	default:
		body, err = encodeAs(obj, c.gvk, c.f)
	}
	recordOf(c.w).Spent(audit.Serialize, time.Since(since))
	if err != nil {
		return err
	}
	c.respond(code, body)
	return nil
}
