// Package policy enforces NetworkPolicies for the pods of one node, with nftables by netlink.
//
// Words. A pod is isolated in a direction when a policy of that direction selects it; then only what one of its policies allows gets
// through. A peer is the other end: pods by selectors, or a block of addresses. Pods of this node that the same policies select share a
// chain per direction; a chain returns for what is allowed and drops the rest. Peers' addresses are in sets.
//
// Packets of pods pass the host's IP layer (see package network), so the place is the forward hook, after Services have been translated:
// both ends are pods' own addresses there. What the node itself sends to its pods (probes, for example) does not pass it and is always
// allowed, as the API reference has it. So is what a pod sends to itself, and what belongs to a connection that was allowed.
//
// In: NetworkPolicies and, once there is one, Namespaces and Pods. Out: chains, sets and maps named "pol-*" in the table "knarr". One
// goroutine plans from the whole picture (plan.go, pure) and sends the difference in one transaction (kernel.go). Names are made from the
// content, so what stays the same is not touched.
package policy
