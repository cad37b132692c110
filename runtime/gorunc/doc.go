// Package runc takes the place of github.com/containerd/go-runc below containerd's shim (by a replace directive in runtime/go.mod). That
// one executes the program runc for everything; this one does what happens in every container's life (create, start, exec, kill,
// delete) in the shim's own process with libcontainer, which is what runc itself is made of. What is rare (update, pause,
// checkpoint, ...) still is the program runc: it finds the container's state where libcontainer keeps it.
// All of that is under the build tag "inprocess", which the shim is built with; containerd itself imports the package for its types.
//
// A container's first process is still "runc init": the shim's own program, started with the argument "init" (init.go).
//
// Words: the gate (gate.go) keeps the shim's reaper away from processes that libcontainer waits for itself.
//
// Decision record: docs/adr/0015-runc-inside-the-shim.md.
package runc
