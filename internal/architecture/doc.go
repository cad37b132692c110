// Package architecture owns the kinds of architecture.knarr.io/v1alpha1: declared components of a
// cluster, the systems around them, and what follows from the declarations.
//
// # Words
//
//	component    pods with one task: it offers ports, and requires other components
//	system       components and the boundary around them; systems nest
//	requirement  one component may connect to offers of another one
//	outside      clients and servers beyond the cluster
//	entrance     a component that components beyond the system's boundary may require
//	layer        a place in a system's order: a component requires its own layer or lower ones
//
// # In
//
// Plain data: Components, Systems, and the objects of the cluster that they speak of.
//
// # Out
//
// The CustomResourceDefinitions, the graph of requirements with its faults, NetworkPolicies, and
// findings about RBAC. Everything is a pure function; internal/controllers/architecture and
// internal/admission act on the results.
//
// ADR 93 has the reasons.
package architecture
