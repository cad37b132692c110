package rest

import (
	"context"

	"github.com/knarr-project/knarr/internal/trace"
)

// spanOfVerb are upstream's names of spans for a resource's verbs. Upstream has a span only for
// watches that begin with a list.
var spanOfVerb = map[string]string{
	"get": "Get", "list": "List", "create": "Create", "update": "Update", "patch": "Patch", "delete": "Delete", "deletecollection": "Delete",
}

// span begins the span of the request's verb.
func (c *Call) span(ctx context.Context) (context.Context, trace.Span) {
	name, ok := spanOfVerb[c.Info.Verb]
	if !ok {
		return ctx, trace.Span{}
	}
	ctx, span := trace.Start(ctx, name)
	if span.On() {
		gvr := c.Endpoint.GVR
		span.Set(trace.Text("accept", c.R.Header.Get("Accept")), trace.Text("audit-id", c.W.Header().Get("Audit-Id")), trace.Text("client", trace.Client(c.R)),
			trace.Text("api-group", gvr.Group), trace.Text("api-version", gvr.Version), trace.Text("name", c.Name), trace.Text("subresource", c.Subresource),
			trace.Text("namespace", c.Namespace), trace.Text("protocol", c.R.Proto), trace.Text("resource", gvr.Resource), trace.Text("scope", c.Info.Scope()),
			trace.Text("url", c.R.URL.Path), trace.Text("user-agent", c.R.UserAgent()), trace.Text("verb", c.R.Method))
	}
	return ctx, span
}

// serializing begins the span of the answer's encoding.
func (c *Call) serializing(ctx context.Context) trace.Span {
	_, span := trace.Start(ctx, "SerializeObject")
	if span.On() {
		span.Set(trace.Text("audit-id", c.W.Header().Get("Audit-Id")), trace.Text("method", c.R.Method), trace.Text("url", c.R.URL.Path), trace.Text("protocol", c.R.Proto),
			trace.Text("mediaType", c.format.Media))
	}
	return span
}

// reading begins the span of a read from the kind's cache.
func (c *Call) reading(ctx context.Context, name string) (context.Context, trace.Span) {
	ctx, span := trace.Start(ctx, name)
	if span.On() {
		span.Set(trace.Text("type", c.Endpoint.Resource.String()))
	}
	return ctx, span
}
