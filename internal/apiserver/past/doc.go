// Package past connects a server with its history of objects (package history). It decides which
// states are recorded, and reads recorded states.
//
// # Words
//
//	subject   the object that a key of the store stands for
//	document  an object as JSON, without values that may not be shown
//	rewind    to undo changes, back to the objects as they were
//
// # In
//
// The changes that the watch cache applies. Recorder is its Tap.
//
// # Out
//
// Timeline and Net answer questions below /insight/v1/. Snapshot has the objects of a kind as they
// were, for reads with the header Knarr-At.
//
// Secrets are recorded without their values. Objects that the store encrypts are encrypted in the
// history with the same keys.
//
// ADR 0091 has the design.
package past
