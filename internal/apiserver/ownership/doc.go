// Package ownership computes metadata.managedFields of updates (everything but server-side apply):
// which fields a write sets, and which managers lose them. The rules are KEP-555's, and the result
// is byte for byte that of apimachinery's field manager, which does the same for every kind. A test
// compares the two over all built-in kinds with random objects.
//
// It is faster for most writes: a built-in kind in its storage version, written as Go values.
//
//   - A new object is not compared with an empty one. Its fields are listed from its Go value, by a
//     plan per Go type and schema type (plan.go, list.go), once for all objects with the same field
//     names (outline.go).
//   - Only changed parts of an object are compared: deeply equal fields are left out (compare.go).
//   - The managers' field sets are parsed once, not with every write (memo.go). Objects of one
//     origin have the same sets.
//
// It leaves some cases to the field manager: managers of another version, types of several shapes,
// duplicate items of a list, and items whose key is an empty string, which a Go value omits. Update
// then reports false.
package ownership
