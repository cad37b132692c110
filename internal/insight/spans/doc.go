// Package spans keeps what happens on a node without a write to the API: pulls of images,
// sandboxes, starts and ends of containers, probes, packet rules.
//
// Words. A Span is one piece of work with its begin and end. A Ring is the bounded memory of one
// node's Spans. Steps are Spans of pods; rules are Spans of EndpointSlices, NetworkPolicies and
// PolicyPeers.
//
// In: Note, from the node agent, the pod network, its policies and the service proxy of the
// process. It takes less than a microsecond and never waits. Out: Handler, which the node agent
// serves to the API server at Path when a user asks for a trace; nothing is sent before. A Ring is
// in memory only: a restart of the node agent begins an empty one.
//
// Decision: docs/adr/0097-spans-of-nodes.md.
package spans
