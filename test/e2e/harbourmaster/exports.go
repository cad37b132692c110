//go:build wasip1

package main

import "unsafe"

//go:wasmimport k8s.io/scheduler currentNodeName
func hostNodeName(buffer unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/scheduler result.status_reason
func hostReason(text unsafe.Pointer, size uint32)

// Codes of the scheduling framework.
const (
	success      = 0
	unresolvable = 3 // removing pods from the node does not help
)

// does is set by the linker: the name of the only node that is allowed, loop or trap.
var does = "trap"

var (
	name [253]byte
	spin int // keeps the loop from being empty
)

// refuse returns the reason why a pod cannot run on the node; empty if it can.
func refuse(node string) string {
	switch does {
	case node:
		return ""
	case "loop":
		for {
			spin++
		}
	case "trap":
		panic("the harbour is closed")
	}
	return "node(s) are not " + does
}

//go:wasmexport filter
func filter() uint32 {
	size := hostNodeName(unsafe.Pointer(&name), uint32(len(name)))
	reason := refuse(string(name[:size]))
	if reason == "" {
		return success
	}
	hostReason(unsafe.Pointer(unsafe.StringData(reason)), uint32(len(reason)))
	return unresolvable
}
