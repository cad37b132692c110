// Package verb carries out operations: get, list, create, update, patch, apply, delete, and the
// subresources that change objects (status, scale, binding, eviction, token).
//
// Words. An Operation is one request, over HTTP or by function call: the user, the endpoint, the
// name and the options. The Engine is what all operations of a server have in common. A
// storedState is an object as a write found it.
//
// The steps of a write: take the object, mutate by admission, set defaults and server-set fields,
// validate by the kind's strategy, validate by admission, commit. A commit compares the object's
// revision with the store's; if another write came first, the steps run again on the newer object
// (docs/adr/0002-optimistic-concurrency.md).
//
// In: an Endpoint (package registry) and decoded objects. Out: objects, or the error that the
// client sees.
package verb
