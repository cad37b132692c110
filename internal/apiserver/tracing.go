package apiserver

import (
	"context"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/trace"
)

// traced begins the span of an authenticated request (KEP-647). It depends on the user whether the
// span continues the client's trace.
func (s *Server) traced(w *codeWriter, r *http.Request, info *requestInfo, id string, user *auth.User, began, authenticated time.Time) context.Context {
	if s.cfg.Tracer == nil {
		return trace.Received(r.Context(), r.Header)
	}
	ctx, span := s.cfg.Tracer.Serve(r.Context(), r, spanName(r.Method, info), saysWhetherSampled(user), began, trace.Text("audit-id", id))
	if !span.On() {
		return ctx
	}
	span.Stage("authentication", began, authenticated)
	w.span = span
	counted, read := w.ended, r.ContentLength
	w.ended = func() {
		counted()
		span.Answered(max(w.code, http.StatusOK), read, w.written)
	}
	return ctx
}

// saysWhetherSampled reports whether the user may decide that its requests are sampled: only users
// who may see or do everything.
func saysWhetherSampled(user *auth.User) bool {
	return slices.Contains(user.Groups, auth.GroupMasters) || slices.Contains(user.Groups, groupMonitoring)
}

// groupMonitoring is the group of monitoring systems.
const groupMonitoring = "system:monitoring"

// spanName returns upstream's name: the path without the names of objects.
func spanName(method string, info *requestInfo) string {
	if !info.isResource {
		return method
	}
	name := method + " /api"
	if info.gvr.Group != "" {
		name = method + " /apis/" + info.gvr.Group
	}
	name += "/" + info.gvr.Version
	if info.namespace != "" {
		name += "/namespaces/{:namespace}"
	}
	name += "/" + info.gvr.Resource
	if info.name != "" || namesOne(info) {
		name += "/{:name}"
	}
	if info.subresource != "" {
		name += "/" + info.subresource
	}
	return name
}

// namesOne reports whether a collection request selects a single name.
func namesOne(info *requestInfo) bool {
	selector, err := fields.ParseSelector(info.query.Get("fieldSelector"))
	if err != nil {
		return false
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	return ok && name != ""
}

// spanOfVerb are upstream's names of spans for a resource's verbs. Upstream has a span only for
// watches that begin with a list.
var spanOfVerb = map[string]string{
	"get": "Get", "list": "List", "create": "Create", "update": "Update", "patch": "Patch", "delete": "Delete", "deletecollection": "Delete",
}

// span begins the span of the request's verb.
func (c *call) span(ctx context.Context) (context.Context, trace.Span) {
	name, ok := spanOfVerb[c.info.verb]
	if !ok {
		return ctx, trace.Span{}
	}
	ctx, span := trace.Start(ctx, name)
	if span.On() {
		gvr := c.endpoint.gvr
		span.Set(trace.Text("accept", c.r.Header.Get("Accept")), trace.Text("audit-id", c.w.Header().Get("Audit-Id")), trace.Text("client", trace.Client(c.r)),
			trace.Text("api-group", gvr.Group), trace.Text("api-version", gvr.Version), trace.Text("name", c.name), trace.Text("subresource", c.subresource),
			trace.Text("namespace", c.namespace), trace.Text("protocol", c.r.Proto), trace.Text("resource", gvr.Resource), trace.Text("scope", c.info.scope()),
			trace.Text("url", c.r.URL.Path), trace.Text("user-agent", c.r.UserAgent()), trace.Text("verb", c.r.Method))
	}
	return ctx, span
}

// serializing begins the span of the answer's encoding.
func (c *call) serializing(ctx context.Context) trace.Span {
	_, span := trace.Start(ctx, "SerializeObject")
	if span.On() {
		span.Set(trace.Text("audit-id", c.w.Header().Get("Audit-Id")), trace.Text("method", c.r.Method), trace.Text("url", c.r.URL.Path), trace.Text("protocol", c.r.Proto),
			trace.Text("mediaType", c.f.media))
	}
	return span
}

// reading begins the span of a read from the kind's cache.
func (c *call) reading(ctx context.Context, name string) (context.Context, trace.Span) {
	ctx, span := trace.Start(ctx, name)
	if span.On() {
		span.Set(trace.Text("type", c.endpoint.resource.String()))
	}
	return ctx, span
}
