// Package traffic counts the connections of one node's pods, and writes them into the node's
// Traffic object.
//
// # Words
//
//	flow      all connections with the same ends: source, destination, port and protocol
//	tried     the kernel has seen the first packet of a connection before any policy judged it
//	passed    the first packet has passed all policies of this node
//	denied    tried and, a moment later, still not passed
//
// The kernel counts, in two sets of nftables with a counter per flow: one before the chains of
// policies, one behind them. An established connection costs one comparison per packet. A new one
// costs two updates of a set. Addresses beyond the cluster count as one, so that clients on the
// internet cannot fill the sets. A small set of its own remembers to which addresses pods connect.
// A flow without new connections leaves the sets after ten minutes.
//
// # In
//
// The node's Traffic object. Counting starts when it exists and ends when it is gone: a controller,
// architecture.Counting, creates one for each Node once a Component or a System is declared. The
// sets are read once a second, or less often if they are large.
//
// # Out
//
// Chains and sets named "seen-*" in the table "knarr", and updates of the Traffic object: within
// seconds of a new flow, otherwise once a minute. An update names the ends by address. The API
// server adds it to what the object has, with the names of the workloads, because a node may not
// read the pods of other nodes.
//
// See docs/adr/0094-the-kernel-counts-flows.md.
package traffic
