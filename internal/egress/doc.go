// Package egress routes the API server's outgoing connections according to a file
// (EgressSelectorConfiguration, KEP-1281): directly, or through a proxy to networks that this
// machine cannot reach.
//
// Words. A Network is a kind of destination: the control plane (webhooks by URL, authentication,
// authorization, audit, traces), the store (etcd), or the cluster (nodes, pods, Services, extension
// servers, webhooks behind Services). The file names a proxy and its protocol for each network.
// Other networks are dialed as without a file. A Selector holds the result; all parts of the server
// that dial use the same one.
//
// Protocols. HTTPConnect is HTTP/1.1's CONNECT (RFC 9110) over TLS, plain TCP or a Unix socket.
// GRPC is konnectivity's protocol over a Unix socket, with konnectivity's own client library (ADR
// 35).
package egress
