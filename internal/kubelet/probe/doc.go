// Package probe asks containers how they are: startup, liveness and readiness, by exec, HTTP, TCP and gRPC. Each probe is a
// goroutine with its own timer, from its container's start to its end; verdicts that change wake the pod's worker.
package probe
