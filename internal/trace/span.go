package trace

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	otelsemconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Span is one piece of work. The zero value records nothing.
type Span struct{ span oteltrace.Span }

// Start starts a child of the context's span. A caller that sets attributes checks On first, to
// avoid creating unused attributes.
func Start(ctx context.Context, name string) (context.Context, Span) {
	parent := oteltrace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name)
	return ctx, Span{span}
}

// On reports whether the span is recorded.
func (s Span) On() bool { return s.span != nil }

// Set adds attributes. It must only be called if the span is On.
func (s Span) Set(attributes ...attribute.KeyValue) { s.span.SetAttributes(attributes...) }

// Failed records an error, if err is not nil.
func (s Span) Failed(err error) {
	if s.span != nil && err != nil {
		s.span.RecordError(err)
	}
}

// End ends the span.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Stage adds a child span for work that has already ended.
func (s Span) Stage(name string, since, until time.Time) {
	if s.span == nil {
		return
	}
	ctx := oteltrace.ContextWithSpan(context.Background(), s.span)
	_, stage := s.span.TracerProvider().Tracer(scope).Start(ctx, name, oteltrace.WithTimestamp(since))
	stage.End(oteltrace.WithTimestamp(until))
}

// Answered ends the span of a request.
func (s Span) Answered(code int, read, written int64) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(otelsemconv.HTTPResponseStatusCode(code))
	if read > 0 {
		s.span.SetAttributes(otelsemconv.HTTPRequestBodySize(int(read)))
	}
	if written > 0 {
		s.span.SetAttributes(otelsemconv.HTTPResponseBodySize(int(written)))
	}
	if code >= http.StatusInternalServerError {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// Text, Number and the others make attributes.
var (
	Text   = attribute.String
	Number = attribute.Int
)

// methods are those of the semantic conventions. Other methods are reported unchanged beside one of
// these.
var methods = map[string]attribute.KeyValue{
	http.MethodConnect: otelsemconv.HTTPRequestMethodConnect, http.MethodDelete: otelsemconv.HTTPRequestMethodDelete, http.MethodGet: otelsemconv.HTTPRequestMethodGet,
	http.MethodHead: otelsemconv.HTTPRequestMethodHead, http.MethodOptions: otelsemconv.HTTPRequestMethodOptions, http.MethodPatch: otelsemconv.HTTPRequestMethodPatch,
	http.MethodPost: otelsemconv.HTTPRequestMethodPost, http.MethodPut: otelsemconv.HTTPRequestMethodPut, http.MethodTrace: otelsemconv.HTTPRequestMethodTrace,
}

// requestAttributes are those of OpenTelemetry's conventions for HTTP servers, and the older
// http.target, which upstream adds.
func requestAttributes(r *http.Request) []attribute.KeyValue {
	secure, scheme, defaultPort := r.TLS != nil, "http", 80
	if secure {
		scheme, defaultPort = "https", 443
	}
	host, port := hostPort(r.Host)
	peer, peerPort := hostPort(r.RemoteAddr)
	out := []attribute.KeyValue{otelsemconv.ServerAddress(host), otelsemconv.URLScheme(scheme), otelsemconv.URLPath(r.URL.Path), attribute.String("http.target", r.URL.RequestURI())}
	if method, ok := methods[r.Method]; ok {
		out = append(out, method)
	} else {
		out = append(out, otelsemconv.HTTPRequestMethodGet, otelsemconv.HTTPRequestMethodOriginal(r.Method))
	}
	if port > 0 && port != defaultPort {
		out = append(out, otelsemconv.ServerPort(port))
	}
	if peer != "" {
		out = append(out, otelsemconv.NetworkPeerAddress(peer))
	}
	if peerPort > 0 {
		out = append(out, otelsemconv.NetworkPeerPort(peerPort))
	}
	if client := Client(r); client != "" {
		out = append(out, otelsemconv.ClientAddress(client))
	}
	if agent := r.UserAgent(); agent != "" {
		out = append(out, otelsemconv.UserAgentOriginal(agent))
	}
	if _, version, ok := strings.Cut(r.Proto, "/"); ok {
		out = append(out, otelsemconv.NetworkProtocolVersion(version))
	}
	return out
}

// Client returns the client's address, from the request's headers or its connection.
func Client(r *http.Request) string {
	if client, _, _ := strings.Cut(r.Header.Get("X-Forwarded-For"), ","); client != "" {
		return client
	}
	client, _ := hostPort(r.RemoteAddr)
	return client
}

// hostPort splits an address whose port may be missing.
func hostPort(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return strings.Trim(address, "[]"), 0
	}
	port, _ = strconv.Atoi(text)
	return host, port
}
