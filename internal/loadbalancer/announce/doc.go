// Package announce makes addresses from pools reachable: one node answers ARP and NDP for each, and
// another one takes over within a second after it has died. See
// docs/adr/0060-one-node-answers-for-an-address.md.
//
// Words. A node stands for an address if it can answer for it: a link of the node is in the
// address's subnet, and with externalTrafficPolicy Local it has a ready endpoint. It holds the
// address if it answers. A beat is a datagram that lists the addresses for which its sender stands.
// Peers are the nodes that exchange beats about an address.
//
// In: Services, EndpointSlices and Nodes from the API, and beats of peers. Out: beats, ARP and NDP
// packets, an Event on the Service. Nothing is opened until a Service has an address from a pool.
// The API decides which nodes are peers; beats alone decide which of them holds. So the loss of
// the API server moves no address. The elector (pure) decides; one goroutine owns it.
package announce
