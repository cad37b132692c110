// Package clienttest tests implementations of client.Interface and has one of its own for tests.
//
// Run is the conformance suite. Every implementation passes it: the API server's in-process client,
// the client over HTTP, and Memory.
//
// Memory holds objects in memory, for tests of packages that cannot start an API server. It keeps
// what components rely on: resource versions and conflicts, the status subresource, finalizers,
// graceful deletion of pods, and Views that show a write when it returns. It has no admission,
// defaults, validation or conversion.
package clienttest
