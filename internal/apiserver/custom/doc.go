// Package custom implements CustomResourceDefinitions. It reads, prunes, defaults, validates,
// converts, prints and scales the objects of a definition, and describes them for discovery and
// OpenAPI. It has no server, store or state of its own; the API server calls it.
//
// Words. A Definition is one CustomResourceDefinition at one revision; it never changes. A Version
// is one of its versions. It works on *unstructured.Unstructured objects of that version, which
// always have apiVersion and kind, unlike the built-in Go types in memory. The stored form of an
// object is its JSON in the storage version at the time of the write.
//
// Everything is made at its first use: an unused Definition is the CustomResourceDefinition and a
// few pointers (ADR 0016). Sources of the behaviour: the API reference of apiextensions.k8s.io/v1,
// and KEPs 95, 575, 598, 599, 1929, 2876, 2885, 4008 and 4358.
package custom
