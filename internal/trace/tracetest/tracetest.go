// Package tracetest is a collector of traces, for tests of what is sent to one.
package tracetest

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector keeps what it is sent (OTLP over gRPC).
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer
	Endpoint string

	mu    sync.Mutex
	spans []Span
}

// Span is one that was sent.
type Span struct {
	*tracev1.Span
	Service string
}

// Trace, ID and Parent are as headers show them.
func (s Span) Trace() string  { return hex.EncodeToString(s.TraceId) }
func (s Span) ID() string     { return hex.EncodeToString(s.SpanId) }
func (s Span) Parent() string { return hex.EncodeToString(s.ParentSpanId) }

// Attribute is what the span says of key, as text; "" when it says nothing.
func (s Span) Attribute(key string) string { return valueOf(s.Attributes, key) }

func valueOf(attributes []*commonv1.KeyValue, key string) string {
	for _, a := range attributes {
		if a.Key != key {
			continue
		}
		if n, ok := a.Value.Value.(*commonv1.AnyValue_IntValue); ok {
			return fmt.Sprint(n.IntValue)
		}
		return a.Value.GetStringValue()
	}
	return ""
}

// Listen runs a collector until the test ends.
func Listen(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Endpoint: listener.Addr().String()}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	var ended sync.WaitGroup
	ended.Go(func() { _ = server.Serve(listener) }) // it ends with Stop
	t.Cleanup(func() { server.Stop(); ended.Wait() })
	return c
}

// Export implements the collector's service.
func (c *Collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans = append(c.spans, Span{span, valueOf(resource.Resource.Attributes, "service.name")})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// Spans are those that were sent.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Config writes a TracingConfiguration that names the collector.
func (c *Collector) Config(t testing.TB, perMillion int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tracing")
	text := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: %d\n", c.Endpoint, perMillion)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
