// Package servers reaches the API servers of a cluster without a load balancer. Its users know the
// addresses of all servers, and go to another server when one fails.
//
// Words. A server is known by its address, HOST:PORT. Living servers are those in the endpoints of
// Service default/kubernetes. Given addresses come from a flag or a kubeconfig. Past servers were
// living once; they are tried last, since they may come back when all living ones are gone. The
// current server is the one that gets new requests.
//
// In: given addresses, the stored list of an earlier run, and the EndpointSlices of Service
// default/kubernetes (Follow). Out: a Transport for HTTP requests, a Forwarder for TCP connections,
// and the list on disk, with which a process starts when the server that it joined is gone.
//
// Choice. Every user ranks the living servers by a hash of its own name and the server's address
// (rendezvous hashing). The users of a lost server therefore spread over all others. A user leaves
// its server when a connection cannot be made, when the peer does not answer pings, or when /readyz
// fails while another server's passes. It returns to a server of a better rank only after that one
// has been ready for minutes, and longer after each failure.
//
// Decision: docs/adr/0072-reaching-several-servers.md.
package servers
