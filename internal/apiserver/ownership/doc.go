// Package ownership computes metadata.managedFields of updates (everything but server-side apply): which fields a write sets,
// and whom it takes them from. The rules are KEP-555's and the outcome is byte for byte that of apimachinery's field manager,
// which does the same for every kind; a test compares the two over all built-in kinds with objects made at random.
//
// It is the shorter way for what most writes are: a built-in kind in its storage version, written as Go values.
//
//   - A new object is not compared with an empty one: its fields are listed straight from its Go value, by a plan per Go type
//     and schema type (plan.go, list.go).
//   - A change is compared only where it is one: what is deeply equal in the old and the new object is left out of the
//     comparison (compare.go).
//   - The field sets of managers are parsed once, not with every write (memo.go); objects made alike have the same.
//
// What it does not know (another version among the managers, types of several shapes, doubled items of a list, or items found by
// an empty string, which a Go value leaves out) it leaves to the field manager: Update then tells that it has done nothing.
package ownership
