// Package apiserver is the only way to the store: it serves the Kubernetes API over HTTP and, with the same
// pipeline by function call, to the components of this process.
//
// Words. A registry is one kind of the table with its behaviour, codec, cache and write path. An endpoint is a
// registry in one served version, as a path names it. An operation is one request whatever way it came: who, which
// endpoint, which object, with what options.
//
// Way of a write: requestinfo.go parses the path, filters.go finds out who it is and whether they may, create.go,
// update.go, patch.go or delete.go carry it out: decode, default, admit, prepare, validate, admit again, and commit as a
// compare-and-swap on the store's revision. Reads come from internal/cache: get.go, list.go, watch.go.
//
// Objects in memory are always in the kind's storage version, with an empty TypeMeta; the endpoint adds
// apiVersion and kind on the wire. See docs/adr/0001 and 0002.
package apiserver
