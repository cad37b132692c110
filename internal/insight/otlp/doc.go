// Package otlp turns changes and what came of them into OpenTelemetry traces: one trace for each
// change of a user, over all controllers and nodes.
//
// Words. A span is a write, or a step of a node; its parent is the newest cause. Links lead to the
// other causes, and to the trace of the request, which upstream's tracing ends at the API server.
// IDs of traces and spans follow from the records, so several servers, and the command, give the
// same change the same ones.
//
// In: the records of the causal log as they are appended (Exporter), or a trace.Tree (Write). Out:
// OTLP over gRPC to the collector of the TracingConfiguration, or OTLP/JSON. The Exporter never
// waits: records that do not fit into its queue are dropped and counted.
//
// Decision: docs/adr/0098-changes-as-opentelemetry-traces.md.
package otlp
