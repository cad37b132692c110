// Package worker is the life of one pod on this node: one goroutine per pod owns everything about it.
//
// What the goroutine hears (a new spec, news from the runtime, a probe's verdict, the end of an action) arrives in its
// inbox. After each batch of news it takes one step: decide (pure, decide.go) says which containers are to be started and stopped, and
// why the others wait; the step carries that out in actions, which run beside the goroutine and report back to the inbox. Nothing waits
// for a poll, and nothing that takes time (a pull, a hook, a grace period) keeps the pod from hearing of its deletion.
//
// A pod's stage only advances: Syncing → Terminating → Terminated → Released → Gone (docs/adr/0011).
package worker
