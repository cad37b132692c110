// Package custom knows what a CustomResourceDefinition means: how objects of its kind are read, pruned, filled with defaults,
// validated, converted, shown as tables and scaled, and what discovery and OpenAPI say of them. It has no server, no store and no
// state of its own; the API server asks it.
//
// Words. A Definition is one CustomResourceDefinition as it was at one revision; it never changes. A Version is one of its
// served versions; it works on *unstructured.Unstructured objects of that version, which, unlike the built-in Go types in memory,
// always carry their apiVersion and kind. The stored form of an object is its JSON in the storage version of its time.
//
// Nothing is made before it is used: a Definition that nobody asks for is the CustomResourceDefinition and a few pointers (ADR 0016).
// Sources of the behaviour: the API reference of apiextensions.k8s.io/v1 and KEPs 95, 575, 598, 599, 1929, 2876, 2885, 4008, 4358.
package custom
