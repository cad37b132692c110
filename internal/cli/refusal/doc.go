// Package refusal explains what an API server answers to the writes of kubectl's files.
//
// kubectl says what is wrong with an object. The package adds the file, the line and the column,
// what is allowed, and the nearest right name. It writes below kubectl's own message, to standard
// error alone, and changes neither the message nor the exit status.
//
// Words. A refusal is an error or a warning of an API server about one write.
//
// In: kubectl's command, its files, and the requests and answers that pass its transport. Out:
// lines that begin with "knarr:". Any API server will do. internal/check finds the places.
// docs/adr/0100-errors-at-their-place.md has the decisions.
package refusal
