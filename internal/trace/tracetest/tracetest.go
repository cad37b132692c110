// Package tracetest provides a collector for tests of tracing.
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

// Collector stores the spans that it receives (OTLP over gRPC).
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer
	Endpoint string

	mu    sync.Mutex
	spans []Span
}

// Span is a received span.
type Span struct {
	*tracev1.Span
	Service string
}

// Trace, ID and Parent are formatted as in headers.
func (s Span) Trace() string  { return hex.EncodeToString(s.TraceId) }
func (s Span) ID() string     { return hex.EncodeToString(s.SpanId) }
func (s Span) Parent() string { return hex.EncodeToString(s.ParentSpanId) }

// Attribute returns the span's value of key as text, or "".
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
	ended.Go(func() { _ = server.Serve(listener) }) // Stop ends it
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

// Spans returns the received spans.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Config writes a TracingConfiguration for the collector and returns its path.
func (c *Collector) Config(t testing.TB, perMillion int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tracing")
	text := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: %d\n", c.Endpoint, perMillion)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
