// Package timeline tells what changed in a cluster: which object, when, by whom, and which fields.
//
// # Words
//
//	item     one change of one object, or one event
//	noise    fields that change all the time and say nothing: heartbeats, managedFields
//	net      the difference between two moments, whatever happened between them
//
// # In
//
// Documents: objects as JSON, before and after a change. The API server has them from its history
// (package history), and answers with Items.
//
// # Out
//
// Compare lists the fields that differ. Print writes Items for a terminal, PrintNet the net
// differences as YAML. All are pure functions.
//
// ADR 0091 has the design.
package timeline
