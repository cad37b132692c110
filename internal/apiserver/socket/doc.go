// Package socket gives the API server control of TCP connections below crypto/tls and net/http.
//
// # Words
//
//   - A Conn is a TCP connection whose writes can be held and then pushed in one system call.
//     A push never blocks. If the socket buffer is full, the rest waits for Drain, so a slow
//     client does not block a worker.
//   - A HangupWatcher reports activity on idle connections, such as a client that hangs up,
//     from one goroutine for all of them.
//
// In: a TCP listener. Out: Conns, and callbacks when a client sends something or hangs up.
//
// ForgetHandshake is the only function that writes to private fields of crypto/tls. CheckLayout
// says whether this version of crypto/tls has them. Decision record:
// docs/adr/0044-one-door-to-the-network.md.
package socket
