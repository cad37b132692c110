// Package proxy makes Services reachable on one node, with nftables by netlink. See
// docs/adr/0013-services-in-nftables.md.
//
// Words. A frontend is an address and port that clients use (cluster IP, external IP, load-balancer
// IP) or a node port. A group is a set of endpoints that a frontend spreads over; slots number them
// without gaps. A class is a way to treat a connection (how many slots, whether to masquerade,
// session affinity) and has one chain of rules.
//
// The kernel finds a connection's frontend in a map, whose value is a class and a group. A small
// verdict map leads to the class's chain. The chain looks up a random slot of the group in the map
// of endpoints. So a change of a Service or of its endpoints changes a few map elements, whatever
// the number of Services.
//
// In: Services, EndpointSlices, the node's own Node. Out: chains "svc-*" and their maps in the
// table "knarr", HTTP servers on health-check node ports, listeners for TCP node ports on
// localhost; nothing is written to the API. One goroutine owns the state. plan (pure) turns one
// Service into elements; ruleset keeps the desired content of the kernel, sends differences, and
// repairs.
package proxy
