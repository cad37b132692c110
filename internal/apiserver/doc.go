// Package apiserver is the only way to the store. It serves the Kubernetes API over HTTP and,
// through the same pipeline by function call, to the components of this process.
//
// Words. A registry is one kind of the table of kinds with its behaviour, codec, cache and write
// path. An endpoint is a registry in one served version, as a path names it. An operation is one
// request, over HTTP or by function call: the user, the endpoint, the object and the options.
//
// The steps of a write: requestinfo.go parses the path. filters.go authenticates and authorizes the
// user. create.go, update.go, patch.go or delete.go carry it out: decode, default, admit, prepare,
// validate, admit again, and commit as a compare-and-swap on the store's revision. Reads come from
// internal/cache: get.go, list.go, watch.go.
//
// Objects in memory are always in the kind's storage version, with an empty TypeMeta. The endpoint
// adds apiVersion and kind on the wire. See docs/adr/0001 and 0002.
package apiserver
