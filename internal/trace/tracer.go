package trace

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	otelsemconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	oteltrace "go.opentelemetry.io/otel/trace"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/knarr-project/knarr/internal/trace"

// flushWithin limits how long the end of the process waits for an unresponsive collector.
const flushWithin = 5 * time.Second

// Options of a Tracer.
type Options struct {
	// Service and Instance identify the process in its spans.
	Service, Instance string
	// Dial connects to the collector; nil dials directly.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Log receives the collector's errors.
	Log *slog.Logger
}

// Tracer samples requests and sends their spans. A nil Tracer does neither.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
}

// Open makes a Tracer. It does not wait for the collector, which may come and go. As in upstream,
// the SDK's own environment variables apply (OTEL_BSP_..., OTEL_SPAN_..., OTEL_EXPORTER_OTLP_...).
func Open(ctx context.Context, config *Configuration, opts Options) (*Tracer, error) {
	if opts.Log != nil {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { opts.Log.Warn("spans could not be sent", "err", err) }))
	}
	exporter, err := otlptracegrpc.New(ctx, clientOptions(config, opts)...)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	t := newTracer(config, sdktrace.NewBatchSpanProcessor(exporter), opts)
	return t, nil
}

// Uploader sends finished spans to a collector.
type Uploader interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	UploadTraces(ctx context.Context, spans []*tracev1.ResourceSpans) error
}

// NewUploader returns access to the configuration's collector for spans that are made elsewhere.
func NewUploader(config *Configuration, opts Options) Uploader {
	return otlptracegrpc.NewClient(clientOptions(config, opts)...)
}

func clientOptions(config *Configuration, opts Options) []otlptracegrpc.Option {
	// KEP-647: the collector is close by
	client := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()}
	if config.Endpoint != nil {
		client = append(client, otlptracegrpc.WithEndpoint(*config.Endpoint))
	}
	if opts.Dial != nil {
		client = append(client, otlptracegrpc.WithDialOption(grpc.WithContextDialer(opts.Dial)))
	}
	return client
}

func newTracer(config *Configuration, processor sdktrace.SpanProcessor, opts Options) *Tracer {
	rate := sdktrace.NeverSample() // except for requests of sampled traces
	if n := config.SamplingRatePerMillion; n != nil && *n > 0 {
		rate = sdktrace.TraceIDRatioBased(float64(*n) / 1e6)
	}
	whose := resource.NewSchemaless(otelsemconv.ServiceName(opts.Service), otelsemconv.ServiceInstanceID(opts.Instance))
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(rate)), sdktrace.WithSpanProcessor(processor), sdktrace.WithResource(whose))
	return &Tracer{provider: provider, tracer: provider.Tracer(scope)}
}

// Provider is for libraries that make their own spans. It is nil without a Tracer.
func (t *Tracer) Provider() oteltrace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Close sends the remaining spans.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// Begin starts the span of work that no request asked for.
func (t *Tracer) Begin(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name, oteltrace.WithAttributes(attributes...))
	if !span.IsRecording() {
		return ctx, Span{}
	}
	return ctx, Span{span}
}

// propagator reads and writes the headers traceparent, tracestate and baggage.
var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// Parent returns the W3C traceparent of a context, or "" if it is part of no trace.
func Parent(ctx context.Context) string {
	at := oteltrace.SpanContextFromContext(ctx)
	if !at.IsValid() {
		return ""
	}
	return "00-" + at.TraceID().String() + "-" + at.SpanID().String() + "-" + at.TraceFlags().String()
}

// traceparent is the canonical form of the header that carries a trace.
const traceparent = "Traceparent"

// Received returns the context of a request when there is no Tracer. It keeps the client's trace,
// so that outgoing requests propagate it.
func Received(ctx context.Context, header http.Header) context.Context {
	if len(header[traceparent]) == 0 {
		return ctx
	}
	return propagator.Extract(ctx, propagation.HeaderCarrier(header))
}

// Serve starts the span of an incoming request. An untrusted client's sampling decision is ignored;
// the span only links to that client's trace.
func (t *Tracer) Serve(ctx context.Context, r *http.Request, name string, trusted bool, since time.Time, more ...attribute.KeyValue) (context.Context, Span) {
	ctx = Received(ctx, r.Header)
	opts := []oteltrace.SpanStartOption{oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithTimestamp(since)}
	if !trusted {
		opts = append(opts, oteltrace.WithNewRoot())
		if client := oteltrace.SpanContextFromContext(ctx); client.IsValid() {
			opts = append(opts, oteltrace.WithLinks(oteltrace.Link{SpanContext: client}))
		}
	}
	ctx, span := t.tracer.Start(ctx, name, opts...)
	if !span.IsRecording() {
		return ctx, Span{}
	}
	span.SetAttributes(requestAttributes(r)...)
	span.SetAttributes(more...)
	return ctx, Span{span}
}
