// Package probe runs startup, liveness and readiness probes of containers by exec, HTTP, TCP and
// gRPC. Each probe is a goroutine with its own timer that lives as long as its container. When a
// probe's verdict changes, the package wakes the pod's worker.
package probe
