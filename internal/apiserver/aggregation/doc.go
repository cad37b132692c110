// Package aggregation lets other servers answer for parts of the API (KEP-263, API reference "APIService").
//
// Words. An APIService names a group version. A local one is served by this very server and is registered by it; a remote one
// names a Service, behind which an extension server answers. A remote is such an APIService with what is known of its server:
// how to reach it, whether it answers, what it serves.
//
// Way of a request: the API server authenticates, authorizes and audits it like any other, asks Find for the path's remote,
// and has it forwarded with the front proxy's certificate and the user's name in headers. A connection goes to one of the Service's
// ready endpoints, else to its cluster IP: a control plane without a service proxy of its own reaches extension servers, too.
//
// One goroutine follows the APIServices and owns the table of remotes, which readers get as an immutable map. Each remote has
// one goroutine that asks the server what it serves: the answer is both the proof that it is available and what discovery tells.
// OpenAPI documents are fetched when a client asks for them. See docs/adr/0018-aggregation.md.
package aggregation
