//go:build wasip1

package main

import "unsafe"

// The host writes the content to the buffer if it fits into the limit, and returns its length.

//go:wasmimport k8s.io/scheduler currentPod
func hostPod(buffer unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/scheduler currentNodeName
func hostNodeName(buffer unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/api node
func hostNode(name unsafe.Pointer, size uint32, buffer unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/scheduler result.status_reason
func hostReason(text unsafe.Pointer, size uint32)

// The codes of upstream's framework that this plugin uses.
const (
	success      = 0
	unresolvable = 3 // removing pods from the node does not help
)

// The buffers live as long as the instance. A garbage collection in each call would cost more.
var (
	podBuffer, nodeBuffer = make([]byte, 16<<10), make([]byte, 16<<10)
	nameBuffer            [253]byte
	disk                  []byte // that the pod of this cycle wants
)

// version is the version of the current node. knarr writes it before each call; other hosts leave
// it 0. The same version is the same node, so the plugin reads it once.
var version uint64

// known has the facts of nodes by their version. Two nodes may share a place, and the later one
// takes it.
var known [4096]struct {
	version uint64
	facts   facts
}

//go:wasmexport knarr_node_version
func nodeVersion() unsafe.Pointer { return unsafe.Pointer(&version) }

//go:wasmexport prefilter
func prefilter() uint32 {
	disk = fill(&podBuffer, hostPod).annotation(diskKey)
	return success
}

//go:wasmexport filter
func filter() uint32 {
	reason := refuse(disk, currentNode())
	if reason == "" {
		return success
	}
	hostReason(unsafe.Pointer(unsafe.StringData(reason)), uint32(len(reason)))
	return unresolvable
}

// score returns the points in the upper half, and the code in the lower one.
//
//go:wasmexport score
func score() uint64 { return uint64(currentNode().points) << 32 }

func currentNode() *facts {
	at := &known[version%uint64(len(known))]
	if version == 0 || at.version != version {
		size := hostNodeName(unsafe.Pointer(&nameBuffer), uint32(len(nameBuffer)))
		at.version, at.facts = version, read(fill(&nodeBuffer, func(buffer unsafe.Pointer, limit uint32) uint32 {
			return hostNode(unsafe.Pointer(&nameBuffer), size, buffer, limit)
		}))
	}
	return &at.facts
}

// fill reads from the host, with a larger buffer if the first one is too small.
func fill(buffer *[]byte, read func(unsafe.Pointer, uint32) uint32) object {
	size := read(unsafe.Pointer(unsafe.SliceData(*buffer)), uint32(len(*buffer)))
	if int(size) > len(*buffer) {
		*buffer = make([]byte, 2*size)
		size = read(unsafe.Pointer(unsafe.SliceData(*buffer)), uint32(len(*buffer)))
	}
	return (*buffer)[:size]
}
