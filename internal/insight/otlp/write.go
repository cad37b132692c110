package otlp

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/knarr-project/knarr/internal/insight/trace"
)

// Write writes a tree as OTLP/JSON, as a collector's file receiver and trace viewers read it. Steps
// of nodes are spans, too.
func Write(out io.Writer, t *trace.Tree) error {
	g := &grouped{}
	for _, root := range t.Hops {
		// Several writes of one request are one trace.
		in := traceOfRequest(root.Request, root.Revision)
		below(g, in, in, nil, root)
	}
	data, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&tracev1.TracesData{ResourceSpans: g.resources("")})
	if err != nil {
		return err
	}
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		return err
	}
	hexIDs(doc)
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	return e.Encode(doc)
}

// below adds the spans of a hop and of all below it.
func below(g *grouped, in, root traceID, parent *tracev1.Span, h *trace.Hop) {
	id := spanOf(in, h.Revision)
	name := h.What
	if h.Revision == 0 {
		id = spanOfStep(in, h.Name+h.What, h.At)
	} else {
		name = h.Resource + " " + h.What
	}
	end := h.At
	s := &tracev1.Span{
		TraceId: slices.Clone(in[:]), SpanId: slices.Clone(id[:]), Kind: tracev1.Span_SPAN_KIND_INTERNAL, Name: name,
		StartTimeUnixNano: nanos(h.Begin), EndTimeUnixNano: nanos(end),
		Attributes: append(objectAttributes(&h.Object, ""), text("knarr.source", string(h.Source))),
	}
	if h.Revision != 0 {
		s.Attributes = append(s.Attributes, text("knarr.actor", h.Actor), number("knarr.revision", h.Revision))
	}
	if parent != nil {
		s.ParentSpanId = parent.SpanId
	}
	if n := len(h.Because); n > 0 {
		newest := slices.Max(h.Because)
		if parent != nil && h.Revision != 0 {
			id := spanOf(in, newest)
			s.ParentSpanId = slices.Clone(id[:])
		}
		for _, other := range h.Because {
			if other != newest {
				s.Links = append(s.Links, link(in, spanOf(in, other), "because"))
			}
		}
	}
	if other, span, _, ok := parseParent(h.Trace); ok {
		s.Links = append(s.Links, link(other, span, "request"))
	}
	if h.Request != "" {
		s.Attributes = append(s.Attributes, text("audit-id", h.Request))
	}
	if h.Note != "" {
		s.Attributes = append(s.Attributes, text("knarr.note", h.Note))
	}
	if strings.Contains(h.What, " failed: ") {
		s.Status = &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR, Message: strings.ToValidUTF8(h.What, "")}
	}
	g.add(service(h.Actor, h.Maker), s)
	for _, next := range h.Hops {
		below(g, in, root, s, next)
	}
}

func nanos(at time.Time) uint64 { return uint64(max(0, at.UnixNano())) }

// hexIDs writes IDs as hexadecimal digits: OTLP/JSON differs from the JSON of protobuf in this.
func hexIDs(v any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			hexIDs(one)
		}
	case map[string]any:
		for key, one := range v {
			id, isText := one.(string)
			if isText && (key == "traceId" || key == "spanId" || key == "parentSpanId") {
				if raw, err := base64.StdEncoding.DecodeString(id); err == nil {
					v[key] = hex.EncodeToString(raw)
				}
				continue
			}
			hexIDs(one)
		}
	}
}
