// Package trace reports to an OpenTelemetry collector how long requests and their parts took
// (KEP-647). Each sampled request has a span. Below it are spans for the server's own work and for
// its outgoing requests.
//
// Words. A Tracer samples requests and sends spans; it exists only if a collector is configured. A
// Span is one piece of work; the zero value records nothing. The context carries the recorded span:
// code for a part of the work calls Start with the context it has anyway. Without a span, Start
// costs a context lookup and no allocation.
//
// The trace of a client's request (W3C Trace Context) is propagated to the server's outgoing HTTP
// requests, with or without a Tracer. Names and attributes are upstream's where upstream has the
// same piece of work. See docs/adr/0034.
package trace
