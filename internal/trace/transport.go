package trace

import (
	"net/http"
	"sync"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Transport tells those that are asked for a traced request of its trace, and makes a span of each question where the request's is recorded.
// Requests of no trace go as they would without it.
func Transport(base http.RoundTripper) http.RoundTripper {
	return &transport{base: base, traced: sync.OnceValue(func() http.RoundTripper {
		// The library's metrics would grow with those that are asked.
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

// CloseIdleConnections is for http.Client.
func (t *transport) CloseIdleConnections() {
	if closer, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}
