package trace

import (
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"
)

// DialOptions make spans of a gRPC client's calls, and tell its server of their traces; none without a Tracer.
func (t *Tracer) DialOptions() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithMessageEvents(otelgrpc.ReceivedEvents, otelgrpc.SentEvents), otelgrpc.WithPropagators(propagator),
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithMeterProvider(noop.NewMeterProvider())))}
}
