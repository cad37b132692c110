// Package calm translates between the map of a cluster and documents of the Common Architecture
// Language Model (CALM) of FINOS, release 1.1, whose documents of release 1.0 have the same parts.
//
// # Words
//
//	node          a component, a system, or a party beyond the cluster
//	interface     a port that a component offers
//	relationship  "connects" between components, "interacts" with an actor beyond the cluster,
//	              "composed-of" between a system and its parts
//	note          a sentence about a part of a document that has no place in Kubernetes
//
// # In
//
// Export: a graph of package relations. Import: a document of at most 4 MiB, which may come from
// anywhere: it is parsed into plain data, nothing in it is fetched, and its size is bounded.
//
// # Out
//
// Export: a document. What only Kubernetes knows, such as selectors, is in the metadata of a node,
// so that an import of an export gives the same declarations. Import: Components, Systems and
// notes.
//
// ADR 95 has the reasons.
package calm
