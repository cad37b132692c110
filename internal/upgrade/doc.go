// Package upgrade replaces the program of a cluster's machines, one after the other.
//
// Words. An Order says which Program the cluster gets, and which machines have their turn. It lies
// in the store under /knarr/upgrade/order; only administrators write it. A Turn names one machine;
// its Nonce makes each one different. A Report is the state of one machine. An Agent runs on each
// machine: it follows the Order, and at its turn fetches the program, verifies it, puts it in the
// place of its own and restarts.
//
// In: an administrator's program file and Orders, Reports from untrusted nodes. Out: a replaced
// program on each machine. internal/controlplane serves the API and runs the servers' agents,
// internal/run those of nodes, and internal/cli gives the turns.
//
// See docs/adr/0079-upgrades-by-turns.md.
package upgrade
