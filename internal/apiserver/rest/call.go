package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/watch"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/insight/because"
)

// Call is one HTTP request for a resource.
type Call struct {
	*verb.Operation
	resources *Handler
	W         http.ResponseWriter
	R         *http.Request
	Info      *wire.RequestInfo
	format    wire.Format

	// Guards the header, which several goroutines use in a deletecollection, and warnings.
	mu       sync.Mutex
	warnings wire.Warnings
}

// Handler serves HTTP requests for resources.
type Handler struct {
	Engine  *verb.Engine
	Metrics *telemetry.Metrics
	Watches *watch.Server
	// Connect serves the subresources that are streams and proxies.
	Connect func(*Call)
}

// Serve carries out an authorized request for a resource.
func (rs *Handler) Serve(w *telemetry.ResponseRecorder, r *http.Request, info *wire.RequestInfo, user auth.User) {
	e, ok := rs.Engine.Kinds.FindServed(info.GVR)
	if !ok && rs.Engine.Kinds.Shared.CatchUp(r.Context()) == nil {
		e, ok = rs.Engine.Kinds.FindServed(info.GVR) // defined through another server
	}
	if !ok {
		if rs.Engine.Kinds.HasGroup(info.GVR.Group) {
			wire.RespondError(w, wire.ErrorFormat(r), wire.ErrPathNotFound)
			return
		}
		wire.NotFoundPath(w)
		return
	}
	c := &Call{resources: rs, W: w, R: r, Info: info, format: wire.JSONFormat}
	c.Operation = &verb.Operation{
		Engine: rs.Engine, Endpoint: e, User: user, Verb: info.Verb, Namespace: info.Namespace, Name: info.Name,
		Subresource: info.Subresource, GVK: e.GVK, Warn: c.warnHeader,
	}
	c.Stopwatch = w
	if id := w.Header()["Audit-Id"]; len(id) > 0 {
		c.Request = id[0]
	}
	if e.Custom != nil && !c.scopeMatches() {
		wire.NotFoundPath(w)
		return
	}
	if err := c.check(); err != nil {
		wire.RespondError(w, wire.ErrorFormat(r), err)
		return
	}
	rs.Metrics.Served(w, info)
	if !e.Kind.Namespaced {
		c.Namespace = ""
	}
	if err := c.travel(); err != nil {
		wire.RespondError(w, wire.ErrorFormat(r), err)
		return
	}
	if sub, ok := e.Kind.Subresource(info.Subresource); ok {
		// Otherwise the subresource shows the object in the requested version.
		if sub.Kind.GroupKind() != e.GVK.GroupKind() {
			c.GVK = sub.Kind
		}
		if sub.Connect {
			rs.Connect(c)
			return
		}
	}
	var err error
	if e.Custom != nil {
		c.format, err = wire.NegotiateCustom(r, c.transforms(), info.Verb == "watch")
	} else {
		c.format, err = wire.Negotiate(r, c.transforms(), info.Verb == "watch")
	}
	if err == nil {
		if err = c.serve(r.Context()); err == nil {
			return
		}
	} else if info.Verb == "watch" {
		err = c.watchFormatError(err)
	}
	wire.RespondError(w, wire.ErrorFormat(r), err)
}

// watchFormatError returns the error for a watch in an unsupported format. Errors in its options
// come first.
func (c *Call) watchFormatError(form error) error {
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	if rv := req.Opts.ResourceVersion; rv != "" {
		if _, err := registry.ParseRevision(rv); err != nil {
			return err
		}
	}
	return form
}

// check does the first checks of a request: its path, its method, and the kind's deprecation
// warning.
func (c *Call) check() error {
	e := c.Endpoint
	if e.Custom != nil {
		text := e.Custom.DeprecationWarning()
		if text != "" {
			c.Warn(text)
		}
		err := c.checkCustomRoute()
		if text != "" && err == nil {
			c.recordDeprecated()
		}
		return err
	}
	if err := c.checkRoute(); err != nil {
		return err
	}
	if text, ok := api.Deprecated(e.GVR); ok {
		c.Warn(text)
		c.recordDeprecated()
	}
	return nil
}

// recordDeprecated marks the use of a deprecated version in the audit log and the metrics.
func (c *Call) recordDeprecated() {
	gvr := c.Endpoint.GVR
	wire.RecordOf(c.W).Annotate("k8s.io/deprecated", "true")
	c.resources.Metrics.Deprecated.WithLabelValues(gvr.Group, gvr.Version, gvr.Resource, c.Info.Subresource, "").Set(1)
}

// transforms returns the transformations that the client may ask for. Objects that are answered but
// not kept (reviews, bindings, evictions, tokens) have no table.
func (c *Call) transforms() wire.AllowedTransforms {
	objects := c.Endpoint.Kind.Object != nil || c.Endpoint.Custom != nil
	answered := c.Info.Verb == "create" && (c.Subresource != "" || c.Endpoint.Kind.Virtual)
	return wire.AllowedTransforms{Metadata: objects, Table: objects && !answered}
}

// withCauses adds the causes that the client names in a header, and the note of a binding. They are
// for display only, so malformed ones are ignored. Anonymous clients have none.
func (c *Call) withCauses(ctx context.Context) context.Context {
	if c.Engine.Kinds.Shared.Causes == nil || c.User.Name == auth.UserAnonymous {
		return ctx
	}
	if c.Subresource == "binding" {
		if note, err := because.ParseNote(c.R.Header.Get(because.NoteHeader)); err == nil {
			ctx = because.WithNote(ctx, note)
		}
	}
	named := c.R.Header[because.Header]
	if len(named) != 1 {
		return ctx
	}
	revisions, err := because.Parse(named[0])
	if err != nil {
		return ctx
	}
	return because.With(ctx, revisions)
}

func (c *Call) serve(ctx context.Context) error {
	ctx, span := c.span(c.withCauses(ctx))
	defer span.End()
	switch c.Info.Verb {
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
	return wire.ErrMethodNotAllowed
}

// warnHeader adds a warning to the response, unless it is already there.
func (c *Call) warnHeader(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warnings.Known == nil { // keep the warnings about the credentials
		// Written by this server, so they parse.
		said, _ := utilnet.ParseWarningHeaders(c.W.Header().Values("Warning"))
		for _, s := range said {
			c.warnings.Add(s.Text)
		}
	}
	if c.warnings.Add(text) {
		c.W.Header()["Warning"] = c.warnings.Headers()
	}
}

// query decodes the URL's options with one of apimachinery's generated functions.
func query[T any](c *Call, into *T, decode func(*url.Values, *T) error) error {
	if len(c.Info.Query) == 0 {
		return nil
	}
	if err := decode(&c.Info.Query, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// respond writes the body, compressed if it is large and the client accepts gzip.
func (c *Call) respond(code int, body []byte) {
	c.recordAnswer(body)
	if zipped, ok := wire.Compress(c.R, body); ok {
		c.W.Header().Set("Content-Encoding", "gzip")
		c.W.Header().Set("Vary", "Accept-Encoding")
		wire.Respond(c.W, code, c.format, zipped)
		return
	}
	wire.Respond(c.W, code, c.format, body)
}

// respondList is respond for a list, which is written in pieces.
func (c *Call) respondList(body *registry.ListBody) error {
	if wire.RecordOf(c.W).WantsResponse() {
		whole, err := body.Bytes()
		if err != nil {
			return err
		}
		c.recordAnswer(whole)
	}
	header := c.W.Header()
	header.Set("Content-Type", c.format.ContentType())
	if body.Size() >= wire.GzipMinBytes && wire.AcceptsGzip(c.R) {
		header.Set("Content-Encoding", "gzip")
		header.Set("Vary", "Accept-Encoding")
		c.W.WriteHeader(http.StatusOK)
		return abortOn(body.ZipTo(c.W))
	}
	header.Set("Content-Length", strconv.Itoa(body.Size()))
	c.W.WriteHeader(http.StatusOK)
	return abortOn(body.SendTo(c.W))
}

// abortOn aborts the connection of an answer that could not be finished, so that the client does
// not take the part for the whole. Usually the client has already gone.
func abortOn(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// answer writes an object of the endpoint's kind, or of the subresource's own.
func (c *Call) answer(ctx context.Context, code int, obj runtime.Object) error {
	var body []byte
	var err error
	span, since := c.serializing(ctx), time.Now()
	defer span.End()
	switch {
	case c.GVK == c.Endpoint.GVK:
		body, err = c.Endpoint.EncodeObject(obj, c.format)
	case c.Subresource == "scale":
		body, err = c.Engine.Kinds.Scales.EncodeObject(obj, c.format)
	default:
		body, err = wire.EncodeAs(obj, c.GVK, c.format)
	}
	wire.RecordOf(c.W).AddLatency(audit.Serialize, time.Since(since))
	if err != nil {
		return err
	}
	c.respond(code, body)
	return nil
}
