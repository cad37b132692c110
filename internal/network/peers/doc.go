// Package peers tells nodes the addresses of the pods that NetworkPolicies allow, without showing
// them the pods.
//
// Words. A Group is the pods that one peer of a policy selects, or the destinations of one named
// port of theirs. A member is an address, or an address and a port. A slice is an object of the
// custom resource PolicyPeers (policypeers.knarr.dev). It holds at most 200 members of one group.
//
// The controller runs in the control plane. It watches pods and publishes the members of the groups
// that policies need. A node watches only the slices of groups that the policies of its own pods
// name. A change of one pod rewrites one slice of each group that selects the pod. Policies with
// equal peers share a group.
//
// In: NetworkPolicies and, once one of them selects peers by labels, Pods and Namespaces. Out: the
// definition of PolicyPeers and its objects. See docs/adr/0075-nodes-read-their-own-pods.md.
package peers
