// Package h2 serves HTTP/2 on connections that keep long responses after their handlers have
// returned.
//
// golang.org/x/net/http2, "the library", does HTTP/2 itself: it reads requests, enforces the rules
// and calls handlers. There, a response lasts as long as its handler runs. For an idle watch that
// is 20 KB: a goroutine with its stack, the request and a buffer. So a Conn lies between the
// library and TLS, and sees the frames of both directions (RFC 9113).
//
// A response that has begun can be detached (Stream.Detach): its handler returns, the library ends
// the stream and forgets it, but the Conn does not send that end. From then on the caller of Detach
// owns the stream. A task of the connection's group (package taskpool) writes DATA frames between
// the library's frames, and at last the end. Both share the connection's flow-control window: what
// the library writes beyond the window waits, because it does not know what others have sent.
//
// In: connections after their handshake. Out: the same connections, served, and detached streams.
// Decision record: docs/adr/0031-answers-outlive-their-handlers.md.
package h2
