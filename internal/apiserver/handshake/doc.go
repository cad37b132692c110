// Package handshake lets a few TLS handshakes be under way at a time, while the other connections wait for their turns on next to nothing.
//
// After a restart all clients come at once, and a handshake takes 60 KB while it lasts: messages, keys, a deep stack. Started all together they would take that together, and none would
// be done earlier. So a connection waits for the client's first words without TLS, on a goroutine that does nothing else, and then for a turn, first come, first served.
//
// A turn is for work, not for patience: after a moment it is over though the handshake is not, which goes on without. Who says nothing has none at all, and who has waited for a second goes
// on without one. So clients that are slow, far away or mean to keep others out, with however many connections, hold nobody up for longer than that.
//
// In: connections of a listener. Out: TLS connections whose handshakes have ended, well or not: the HTTP server finds that out when it asks for it again, and says what it always says.
package handshake
