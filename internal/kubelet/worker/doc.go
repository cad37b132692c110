// Package worker runs one pod on this node. One goroutine for each pod owns everything about it.
//
// News arrives in the goroutine's inbox: a new spec, updates from the runtime, probe results, the
// ends of actions. After each batch of news the goroutine takes one step. A pure function
// (decide.go) says which containers to start and to stop, and why the others wait. The step carries
// this out in actions, which run beside the goroutine and report back to the inbox. Nothing waits
// for a poll. A slow action (an image pull, a hook, a grace period) does not delay the reaction to
// the pod's deletion.
//
// A pod's stage only advances: Syncing → Terminating → Terminated → Released → Gone
// (docs/adr/0011).
package worker
