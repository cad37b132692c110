// Package relations derives from a cluster's objects which parts depend on which.
//
// # Words
//
//	component   workloads with one name: a Deployment, or several that share their labels
//	system      the components with one label app.kubernetes.io/part-of, or of one namespace
//	relation    one component depends on another: it calls it, or is reached through it
//	evidence    the field that a relation was derived from
//	outside     clients and servers beyond the cluster
//
// # In
//
// Objects: workloads, Services, Ingresses, ConfigMaps, claims and pods, as the API returned them.
// Secrets are never read. Read fetches them with the rights of its client.
//
// # Out
//
// Graph: components and relations, sorted, the same for the same objects. Impact orders the
// components that suffer from the loss of one thing. Text, Mermaid and SVG draw a graph.
//
// A derived relation is a sign, not a proof: the name of a Service in a setting need not be called.
// ADR 90 has the reasons.
package relations
