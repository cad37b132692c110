// Package causes keeps the causal log: one Record for each write, with the revisions that the write
// was made because of.
//
// Words. A Record is one committed write. A segment is one file of Records. The forward closure of
// a revision are all Records that came of it; the backward closure is all that led to it.
//
// In: Append, from the API server, after a commit. It takes a lock for a moment and never waits for
// the disk; what does not fit into the buffer is dropped and counted. One goroutine writes the
// segments. The log is not synced: a crash of the machine may lose its last moments.
//
// Out: OfObject, OfRequest, At, Forward and Backward, which read the segments.
//
// ADR 0086 has the design.
package causes
