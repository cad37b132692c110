// Package logs owns the files of container logs on the node: their folders and the links that log
// collectors follow (Folders), their size (Rotator), and their end (Complete).
//
// In: the pods' workers and the list of running containers. Out: files below /var/log, or below the
// data folder; see docs/adr/0056-logs-where-collectors-look.md.
//
// A log that has grown too large is renamed, and the runtime opens a new one. The renamed parts are
// compressed, and the oldest are removed.
package logs
