// Package etcd is the store's engine: etcd, either embedded and called in process, or an outside one by URL.
//
// Open runs one etcd server inside this process without its network layer: no listener, no gRPC, no client. Writes go
// through raft and its write-ahead log as always, so a data folder is an ordinary etcd 3.6 data folder, which etcd and
// etcdutl can read, and a committed write is on disk. Reads go straight to the multi-version map.
//
// Connect speaks to an etcd (3.5 or newer) by URL, with the same contract.
//
// Both pass storetest.Run. Decision record: docs/adr/0003-one-store-contract-etcd.md.
package etcd
