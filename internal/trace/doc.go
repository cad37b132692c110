// Package trace tells an OpenTelemetry collector where the time of requests went (KEP-647): a span of each request that is sampled, and below it spans of what
// the server did and of whom it asked.
//
// Words. A Tracer samples requests and sends what was recorded; there is none unless the server was told of a collector. A Span is one piece of work; the zero
// value records nothing. Where a span is recorded, its context carries it, and nothing else does: who does a part of the work calls Start with the context that it
// has anyway. Without a span that is a look into the context and no allocation.
//
// The trace that a client's request belongs to (W3C Trace Context) goes on to whom the server asks over HTTP, with or without a Tracer. Names and attributes are
// upstream's where upstream has the same piece of work. See docs/adr/0034.
package trace
