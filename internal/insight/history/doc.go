// Package history keeps the states that objects had: what each change replaced.
//
// # Words
//
//	change    one write of one object; its Before is the state that it replaced
//	position  the revision up to which the log has all changes
//	block     changes that are compressed together, with a header by which a query skips it
//	segment   a file of blocks; the oldest segment is removed when the log is full
//	gap       a time of which the log does not have all changes
//	reach     the oldest time from which on the log has changes
//
// A state is written when it is replaced, not when it begins. So a creation costs a few bytes, each
// state is stored once, and the oldest segment can be removed at any time: to see objects as they
// were, undo all changes since then, starting from the objects as they are.
//
// # In
//
// Append, from the watch cache, with all changes in the order of revisions. It never waits: a full
// buffer drops changes and leaves a gap. One goroutine writes the blocks. The log is not synced: at
// its next start it asks for the changes after its position, which the store still has for minutes.
// Rules say what may be kept.
//
// # Out
//
// Each reads changes. RevisionAt turns a time into a revision. Reach and the gaps say what an
// answer cannot know.
//
// ADR 0091 has the design.
package history
