// Package audit records the requests to the API server and their users (API reference,
// audit.k8s.io/v1).
//
// Words. A Policy decides at which level a request is recorded, and which of its stages are
// omitted. A Record is one request in progress; each of its stages creates an event. A Sink takes
// events: a file, or a webhook that gets them in batches.
//
// A Record is nil if the policy says "None" or there is no policy, and every method of a nil Record
// does nothing: a server without audit does not pay for it. Objects are encoded only at the levels
// that include them.
package audit
