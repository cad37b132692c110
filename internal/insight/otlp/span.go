package otlp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/knarr-project/knarr/internal/insight/causes"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/knarr-project/knarr/internal/insight/otlp"

type (
	traceID [16]byte
	spanID  [8]byte
)

// traceOf is the trace of a change: of the request, or of the write if the request is unknown.
func traceOf(root *causes.Record) traceID {
	return traceOfRequest(root.Request, root.Revision)
}

func traceOfRequest(request string, revision int64) traceID {
	if request == "" {
		request = string(binary.BigEndian.AppendUint64([]byte("revision "), uint64(revision)))
	}
	sum := sha256.Sum256([]byte("knarr change " + request))
	return traceID(sum[:16])
}

// spanOf is the span of a write in a trace.
func spanOf(in traceID, revision int64) spanID {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(slices.Clone(in[:]), uint64(revision)))
	return spanID(sum[:8])
}

// spanOfStep is the span of the step of a node.
func spanOfStep(in traceID, text string, at time.Time) spanID {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(append(slices.Clone(in[:]), text...), uint64(at.UnixMicro())))
	return spanID(sum[:8])
}

// parseParent reads a W3C traceparent; ok is false for one that is none.
func parseParent(text string) (in traceID, span spanID, sampled, ok bool) {
	parts := strings.Split(text, "-")
	if len(parts) != 4 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return in, span, false, false
	}
	var flags [1]byte
	_, err1 := hex.Decode(in[:], []byte(parts[1]))
	_, err2 := hex.Decode(span[:], []byte(parts[2]))
	_, err3 := hex.Decode(flags[:], []byte(parts[3]))
	ok = err1 == nil && err2 == nil && err3 == nil && in != traceID{} && span != spanID{}
	return in, span, ok && flags[0]&1 != 0, ok
}

func text(key, value string) *commonv1.KeyValue {
	return &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: strings.ToValidUTF8(value, "")}}}
}

func number(key string, value int64) *commonv1.KeyValue {
	return &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_IntValue{IntValue: value}}}
}

func link(in traceID, span spanID, kind string) *tracev1.Span_Link {
	return &tracev1.Span_Link{TraceId: slices.Clone(in[:]), SpanId: slices.Clone(span[:]), Attributes: []*commonv1.KeyValue{text("knarr.link", kind)}}
}

// objectAttributes name an object in the words of OpenTelemetry's conventions where it has some.
func objectAttributes(o *causes.Object, uid string) []*commonv1.KeyValue {
	out := []*commonv1.KeyValue{text("k8s.resource.name", o.Resource), text("k8s.object.name", o.Name)}
	if o.Group != "" {
		out = append(out, text("k8s.resource.group", o.Group))
	}
	if o.Namespace != "" {
		out = append(out, text("k8s.namespace.name", o.Namespace))
	}
	if uid != "" {
		out = append(out, text("k8s.object.uid", uid))
	}
	return out
}

// service is the service.name of a maker: the component, a node's agent, or user.
func service(actor, maker string) string {
	switch {
	case strings.HasPrefix(actor, "system:node:"), strings.HasPrefix(maker, "node:"):
		return "node-agent"
	case causes.IsComponent(actor):
		return maker
	}
	return "user"
}

// grouped collects spans by their service.
type grouped struct {
	names []string
	spans map[string][]*tracev1.Span
	count int
}

func (g *grouped) add(service string, s *tracev1.Span) {
	if g.spans == nil {
		g.spans = map[string][]*tracev1.Span{}
	}
	if _, known := g.spans[service]; !known {
		g.names = append(g.names, service)
	}
	g.spans[service] = append(g.spans[service], s)
	g.count++
}

// resources returns the spans as OTLP has them. instance is the server that sends them; may be "".
func (g *grouped) resources(instance string) (out []*tracev1.ResourceSpans) {
	for _, name := range g.names {
		about := []*commonv1.KeyValue{text("service.name", name), text("service.namespace", "knarr")}
		if instance != "" {
			about = append(about, text("service.instance.id", instance))
		}
		out = append(out, &tracev1.ResourceSpans{
			Resource:   &resourcev1.Resource{Attributes: about},
			ScopeSpans: []*tracev1.ScopeSpans{{Scope: &commonv1.InstrumentationScope{Name: scope}, Spans: g.spans[name]}},
		})
	}
	return out
}
