// Package network is the pod network of one node. It gives each pod an interface and an address,
// routes between the pods of all nodes, forwards host ports, and masquerades traffic that leaves
// the cluster. See docs/adr/0012-pod-network.md.
//
// Words. An attachment is one interface of one sandbox (CNI's container id and interface name). The
// gateway is the first address of the node's pod range. It is on the link "knarr0" and is every
// pod's next hop. The overlay is the VXLAN link "knarr.vxlan" to the other nodes, the peers.
//
// Each pod has a veth pair without a bridge. The pod has its address as a /32 and a default route
// to the gateway; the host has a /32 route to the pod. All traffic of a pod therefore passes the
// host's IP layer, where Service rules and policies apply, and br_netfilter is not needed.
//
// In: Nodes (its own for the pod ranges, the others as peers) and requests of the CNI plugin on a
// unix socket. Out: links, addresses, routes, neighbours; the chains "pod-*" and maps "hostport*"
// of the nftables table "knarr"; one file per attachment under DataDir. Purge removes all of this.
package network
