// Package transport is the API server's one door to the network: it serves HTTP/1.1 and HTTP/2, and
// lets the response of a watch outlive its handler.
//
// # Words
//
//   - Fast is the transport that is used by default. A watch costs no goroutine, the writes of many
//     watches share system calls, and large lists take turns. For that it stands between net/http,
//     crypto/tls and golang.org/x/net/http2, and reads private fields of the last two.
//   - Plain is net/http as it is. Every response is written by its handler.
//   - A Response is the rest of a response that was detached from its handler. It is written in
//     turns of a task (package taskpool).
//
// In: an http.Server and a listener. Out: the same server, served; Responses.
//
// Only this package imports socket, h2 and handshake (test/arch). If a library looks different from
// what they expect, New makes a Plain transport instead of a Fast one and logs why.
// Decision record: docs/adr/0044-one-door-to-the-network.md.
package transport
