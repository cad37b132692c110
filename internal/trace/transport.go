package trace

import (
	"net/http"
	"sync"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Transport propagates the trace to outgoing requests, and adds a span for each if the incoming
// request is recorded. Requests without a trace pass unchanged.
func Transport(base http.RoundTripper) http.RoundTripper {
	return &transport{base: base, traced: sync.OnceValue(func() http.RoundTripper {
		// Without this, the library's metrics would grow with the number of destinations.
		return otelhttp.NewTransport(base, otelhttp.WithPropagators(propagator), otelhttp.WithMeterProvider(noop.NewMeterProvider()))
	})}
}

type transport struct {
	base   http.RoundTripper
	traced func() http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !oteltrace.SpanContextFromContext(r.Context()).IsValid() {
		return t.base.RoundTrip(r)
	}
	return t.traced().RoundTrip(r)
}

// CloseIdleConnections is called by http.Client.
func (t *transport) CloseIdleConnections() {
	if closer, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}
