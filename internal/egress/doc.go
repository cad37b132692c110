// Package egress connects the API server to others the way that a file says (EgressSelectorConfiguration, KEP-1281): directly, or through a proxy
// that knows networks which this machine does not reach.
//
// A Network is where a connection leads, as the server sees it: to the control plane (webhooks by URL, authentication, authorization, audit, traces), to the
// store (etcd), or into the cluster (nodes, pods, Services, extension servers, webhooks behind Services). The file names a proxy and its protocol for each;
// what it does not name is connected to as if there were no file. A Selector is made once, and is what all those that connect are given.
//
// Protocols: HTTPConnect is HTTP/1.1's CONNECT (RFC 9110) over TLS, plain TCP or a Unix socket; GRPC is konnectivity's, over a Unix socket, spoken by its own
// client library (ADR 35).
package egress
