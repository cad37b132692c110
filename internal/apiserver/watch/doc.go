// Package watch sends the changes of a kind to clients.
//
// Words. A watcher is one open watch. A hub encodes each event once for all watches with the same
// interest and format; its members take its frames. A watchStream is a watch that has left its
// request: a task without a goroutine. A watcher that cannot keep up with its hub continues with a
// cursor of its own (docs/adr/0024-watches-without-goroutines.md).
//
// In: the kind's event log (internal/cache). Out: JSON documents, protobuf messages or WebSocket
// messages, through internal/apiserver/transport.
package watch
