// Package segments owns the files and the writer of an append-only log.
//
// # Words
//
//	log      a folder of segments that one process writes
//	segment  a file: magic, head, blocks; the oldest segment is removed when the log is full
//	head     what a log knows when a segment begins; of a fixed length, may be empty
//	block    bytes that are written at once; the log's own format tells whether they are whole
//	view     the segments at one moment; their blocks are whole and do not change
//
// # In
//
// A Format describes a log. Files.Append takes blocks. A Writer calls the log's functions in one
// goroutine, so that callers never wait for the disk.
//
// # Out
//
// Files.View, which goroutines read beside the writer. Segment.Memo keeps a log's index of an ended
// segment. Decoder reads numbers and bytes of foreign input.
//
// The files are not synced: a killed process loses what its Writer has not written, and a crash of
// the machine may lose the last seconds. Open cuts a torn end. ADR 0110 has the reasons.
package segments
