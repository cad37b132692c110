// Package aggregation lets other servers serve parts of the API (KEP-263, API reference
// "APIService").
//
// Words. An APIService names a group version. A local one is served by this server, which registers
// it. A remote one names a Service with an extension server behind it. A Remote is such an
// APIService with the state of its server: its address, its availability, its kinds.
//
// The steps of a request: the API server authenticates, authorizes and audits it like any other,
// calls Find for the path's remote, and lets it forward the request with the front proxy's
// certificate and the user's name in headers. A connection goes to one of the Service's ready
// endpoints, else to its cluster IP: so a control plane without a service proxy reaches extension
// servers, too.
//
// One goroutine follows the APIServices and owns the table of remotes; readers get an immutable
// map. Each remote has one goroutine that requests the server's discovery document: an answer
// proves that the server is available, and is also what discovery shows. OpenAPI documents are
// fetched when a client requests them. See docs/adr/0018-aggregation.md.
package aggregation
