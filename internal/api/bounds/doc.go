// Package bounds refuses documents that cost far more processor time or memory than a request is
// worth. It does so before a library reads them, because a library that computes ignores the
// request's deadline. The checks look at sizes alone; their cost is linear in the input.
//
// The libraries are slow in these cases:
//
//   - Quantities (quantity.go, document.go, wire.go): they compute ten to the power of the
//     exponent, and take quadratic time in the number of digits.
//   - Strategic merge patches (merge.go): they compare every element of one list with every element
//     of another.
//   - JSON patches, merge patches and schemas (nested.go): they read the content of each nesting
//     level again, so a body of three megabytes would take thirty gigabytes.
//   - Field managers (managers.go): they rebuild the whole object for each manager.
//   - Unread JSON inside objects (raw.go): the library for field ownership panics if it is invalid.
//
// All limits leave room for objects of 1.5 MB; docs/internals/reliability.md has the figures.
package bounds
