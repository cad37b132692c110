// Package bounds refuses what would keep a processor busy for longer than any request is worth, before it does: a request's deadline
// does not end a library that computes. The rules look at sizes alone, so that what they cost is linear in what they read.
//
//   - A quantity (quantity.go, document.go, wire.go) is read by a library that computes ten to the power of its exponent, and
//     something quadratic in its digits.
//   - A strategic merge patch (merge.go) compares each element of a list with each element of another.
//   - JSON and merge patches and schemas (nested.go) are read by libraries that read what is within a level again for each level, so that a body of
//     three megabytes would take thirty gigabytes.
//   - The managers of an object's fields (managers.go) each have the library make the whole object anew.
//   - JSON within objects (raw.go) that cannot be read makes the library of field owners panic.
//
// Nothing here undercuts what objects of 1.5 MB need; the figures stand in
// docs/internals/reliability.md.
package bounds
