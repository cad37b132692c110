// Package network is the pod network of one node: it gives each pod an interface and an address, routes between the
// pods of all nodes, forwards host ports, and masquerades what leaves the cluster. See docs/adr/0012-pod-network.md.
//
// Words. An attachment is one interface of one sandbox (CNI's container id and interface name). The gateway is the
// first address of the node's pod range; it sits on the link "knarr0" and is every pod's next hop. The overlay is the
// VXLAN link "knarr.vxlan" to the other nodes (peers).
//
// A pod hangs on a veth pair without a bridge: the pod has its address as a /32 and a default route to the gateway,
// the host has a /32 route to the pod. All traffic of a pod therefore passes the host's IP layer, where the Service
// rules and the policies are, and br_netfilter is not needed.
//
// In: Nodes (the own one for its pod ranges, the others as peers), CNI requests from the plugin on a unix socket.
// Out: links, addresses, routes, neighbours, the chains "pod-*" and maps "hostport*" of the nftables table "knarr",
// one file per attachment under DataDir. Purge removes all of that.
package network
