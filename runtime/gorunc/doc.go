// Package runc replaces github.com/containerd/go-runc below containerd's shim, by a replace
// directive in runtime/go.mod. go-runc executes the program runc for everything. This package does
// the frequent work (create, start, exec, kill, delete, ps) in the shim's own process, with runc's
// library libcontainer. The program runc still does the rare work, such as update, pause and
// checkpoint: it finds a container's state where libcontainer keeps it. All of this has the build
// tag "inprocess", with which the shim is built; containerd itself imports the package for its
// types.
//
// A container's first process is still "runc init": the shim's own program with the argument "init"
// (init.go).
//
// Words: the gate (gate.go) keeps the shim's reaper away from processes for which libcontainer
// waits.
//
// Decision record: docs/adr/0015-runc-inside-the-shim.md.
package runc
