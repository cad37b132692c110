// Package audit writes down who asked the API server for what (API reference, audit.k8s.io/v1).
//
// Words. A Policy decides at which level a request is recorded and which of its stages are left out. A Record is one request on its
// way; each stage of it makes an event. A Sink takes events: a file, or a webhook that gets them in batches.
//
// A Record is nil where the policy says "None" or there is no policy, and every method of a nil Record does nothing: a server without
// audit does not pay for it. Objects are encoded only at the levels that show them.
package audit
