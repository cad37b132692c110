// Package handshake limits how many TLS handshakes run at a time. Other connections wait for their
// turns on very little memory.
//
// After a restart all clients connect at once. A handshake takes 60 KB while it lasts: messages,
// keys, a deep stack. If all ran at once, all would take that memory at once, and none would end
// earlier. So a connection first waits for the client's first bytes, without TLS, on a goroutine
// that does nothing else. Then it waits for a turn, first come, first served.
//
// A turn is for work, not for waiting: it ends after a moment, and the handshake continues without
// it. A client that sends nothing gets no turn. A client that has waited for a second continues
// without one. So clients that are slow, far away or hostile delay others by no more than that,
// however many connections they open.
//
// In: connections of a listener. Out: TLS connections whose handshakes have ended, successfully or
// not. The HTTP server notices a failure when it asks for the handshake again, and reports it as
// usual. Decision record: docs/adr/0032-memory-after-a-burst.md.
package handshake
