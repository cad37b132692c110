// Package etcd is the store's engine: etcd, either embedded and called in process, or an outside
// one by URL.
//
// Open runs one etcd server inside this process without its network layer: no listener, no gRPC, no
// client. Writes go through raft and its write-ahead log. So a committed write is on disk, and the
// data folder is an ordinary one of etcd 3.6, which etcd and etcdutl can read. Reads go straight to
// etcd's multi-version map.
//
// Connect uses an etcd (3.5 or newer) by URL, with the same contract.
//
// Both pass storetest.Run. Decision record: docs/adr/0003-one-store-contract-etcd.md.
package etcd
