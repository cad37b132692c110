// Package architecture compares declared Components and Systems with the cluster. It makes the
// NetworkPolicies that follow from them, and keeps the conditions in their statuses.
//
// In: Components, Systems, Traffic, and the objects that they speak of: pods, workloads, Services,
// roles, bindings, NetworkPolicies. Only Components and Systems are watched before the first of
// them exists. Out: the CustomResourceDefinitions, NetworkPolicies that Components own, statuses,
// Events.
//
// Counting lets the nodes count connections: it makes and deletes their Traffic objects.
//
// internal/architecture decides; this package reads and writes. ADR 93 has the reasons.
package architecture
