// Package policy enforces NetworkPolicies for the pods of one node, with nftables by netlink.
//
// Words. A pod is isolated in a direction if a policy of that direction selects it. Then only
// traffic that one of its policies allows passes. A peer is the other end: pods given by selectors,
// or a block of addresses. Pods of this node that the same policies select share a chain per
// direction. The chain returns for allowed packets and drops all others. Peers' addresses are in
// sets.
//
// Pods' packets pass the host's IP layer (see package network). The rules are in the forward hook,
// after Services have been translated, so both ends are pods' own addresses. Packets from the node
// itself to its pods, such as probes, do not pass the forward hook. They are always allowed, as the
// API reference requires. So are a pod's packets to itself and packets of allowed connections.
//
// The pod network reports each attachment before a process of the pod runs (Attach), and returns to
// the runtime once the pod's policies are in force. Rules for this node's pods therefore do not
// depend on status.podIPs. See docs/adr/0058-policies-judge-the-first-packet.md.
//
// The agent reads the pods of its own node only. The control plane publishes the addresses of peers
// on other nodes (package peers), and the agent watches the groups that the policies of its pods
// name. Against another vendor's API server it reads all pods (Config.AllPods).
//
// In: attachments, NetworkPolicies and, once a policy exists, Namespaces, this node's Pods and
// PolicyPeers. Out: chains, sets and maps named "pol-*" in the table "knarr". One goroutine
// computes a plan from all objects (plan.go, pure) and sends the difference in one transaction
// (kernel.go). Names are hashes of the content, so unchanged parts are not touched.
package policy
