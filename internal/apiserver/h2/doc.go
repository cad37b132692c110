// Package h2 serves HTTP/2 on connections that keep the answers that go on for hours.
//
// HTTP/2 itself is golang.org/x/net/http2's: it reads requests, keeps the rules, calls handlers. But an answer lasts, there, as long as its handler runs: a goroutine with its stack, the
// request, a buffer, 20 KB for a watch that says nothing. So a Conn lies between the library and TLS, and sees the frames of both directions (RFC 9113). An answer that has
// begun can be taken (Stream.Take): its handler returns, the library ends the stream and forgets it, but that end is not sent. From then on the stream is its taker's: a task of the
// connection's group (package deliver), which writes DATA frames between the library's, and at last the end. The connection's window of flow control is everybody's: what the library
// writes beyond it, not knowing what others have sent, waits.
//
// In: connections after their handshake. Out: the same, served. What is taken, and what is written then, is the taker's to know.
// Decision record: docs/adr/0031-answers-outlive-their-handlers.md.
package h2
