// Package registry knows the kinds that a server has, and reads and converts their objects.
//
// Words. A Registry is one kind with its strategy, codec, cache and place. An Endpoint is a
// Registry in one served version, as a path names it. Kinds finds endpoints: those of the table of
// kinds, and those that providers add while the server runs. A Place is a store with its cache and
// leases. Shared is what all kinds of a server have in common. A Transaction is what a write
// commits: the object, and what the kind's hooks add. A page is the answer to a list.
//
// In: stored objects (internal/store, internal/cache), strategies (internal/resource). Out: objects
// in memory, and their encodings in each served version. Nothing here decides about a write; that
// is package verb.
package registry
