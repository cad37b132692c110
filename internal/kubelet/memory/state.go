package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/checkpoint"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

// table counts one resource of one NUMA node, in bytes.
type table struct {
	Total          uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

// nodeState is the state of one NUMA node.
type nodeState struct {
	// Assignments counts the blocks that use the node.
	Assignments int                            `json:"numberOfAssignments"`
	Memory      map[corev1.ResourceName]*table `json:"memoryMap"`
	// Cells are the nodes of the node's group.
	Cells []int `json:"cells"`
}

// block is an amount of one resource on a set of NUMA nodes.
type block struct {
	Affinity []int               `json:"numaAffinity"`
	Type     corev1.ResourceName `json:"type"`
	Size     uint64              `json:"size"`
}

func (b block) nodes() topology.NodeSet { return topology.Nodes(b.Affinity...) }

// blocks maps pods and containers to their blocks.
type blocks map[string]map[string][]block

// file is the checkpoint's JSON form, as upstream's kubelet writes it.
type file struct {
	PolicyName   string             `json:"policyName"`
	MachineState map[int]*nodeState `json:"machineState"`
	Entries      blocks             `json:"entries,omitempty"`
	Checksum     uint64             `json:"checksum"`
}

// checksum is FNV-1a over a text form of the content, as upstream's kubelet computes it: the
// notation of github.com/davecgh/go-spew with upstream's names of types.
func (f *file) checksum() uint64 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, "(*state.MemoryManagerCheckpoint){PolicyName:(string)"+f.PolicyName+" MachineState:(state.NUMANodeMap)"+dumpNodes(f.MachineState)+
		" Entries:(state.ContainerMemoryAssignments)"+dumpBlocks(f.Entries)+" Checksum:(checksum.Checksum)0}")
	return uint64(h.Sum32())
}

func dumpNodes(nodes map[int]*nodeState) string {
	var list []string
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[id]
		var tables []string
		for _, name := range slices.Sorted(maps.Keys(n.Memory)) {
			t := n.Memory[name]
			tables = append(tables, fmt.Sprintf("%s:<*>{TotalMemSize:(uint64)%d SystemReserved:(uint64)%d Allocatable:(uint64)%d Reserved:(uint64)%d Free:(uint64)%d}",
				name, t.Total, t.SystemReserved, t.Allocatable, t.Reserved, t.Free))
		}
		list = append(list, fmt.Sprintf("%d:<*>{NumberOfAssignments:(int)%d MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[%s] Cells:([]int)%v}",
			id, n.Assignments, strings.Join(tables, " "), n.Cells))
	}
	return "map[" + strings.Join(list, " ") + "]"
}

func dumpBlocks(all blocks) string {
	var pods []string
	for _, pod := range slices.Sorted(maps.Keys(all)) {
		var containers []string
		for _, name := range slices.Sorted(maps.Keys(all[pod])) {
			var list []string
			for _, b := range all[pod][name] {
				list = append(list, fmt.Sprintf("{NUMAAffinity:([]int)%v Type:(v1.ResourceName)%s Size:(uint64)%d}", b.Affinity, b.Type, b.Size))
			}
			containers = append(containers, name+":["+strings.Join(list, " ")+"]")
		}
		pods = append(pods, pod+":map["+strings.Join(containers, " ")+"]")
	}
	return "map[" + strings.Join(pods, " ") + "]"
}

func (f file) encode() []byte {
	if f.MachineState == nil {
		f.MachineState = map[int]*nodeState{}
	}
	f.Checksum = f.checksum()
	raw, _ := json.Marshal(f) // strings and numbers always have a JSON form
	return raw
}

func decode(raw []byte) (*file, error) {
	f := &file{}
	if err := json.Unmarshal(raw, f); err != nil {
		return nil, err
	}
	for id, n := range f.MachineState {
		if n == nil || id < 0 || id > topology.MaxNode {
			return nil, fmt.Errorf("machineState[%d]: the node is not known", id)
		}
		for name, t := range n.Memory {
			if t == nil {
				return nil, fmt.Errorf("machineState[%d].memoryMap[%.60q] is null", id, name)
			}
		}
	}
	for pod, containers := range f.Entries {
		for name, list := range containers {
			for _, b := range list {
				if b.nodes().Len() != len(b.Affinity) || len(b.Affinity) == 0 {
					return nil, fmt.Errorf("entries[%.60q][%.60q]: the NUMA nodes %.40v are not a set", pod, name, b.Affinity)
				}
			}
		}
	}
	if f.Checksum != 0 && f.Checksum != f.checksum() {
		return nil, errors.New("the checksum does not match the content")
	}
	if f.Entries == nil {
		f.Entries = blocks{}
	}
	return f, nil
}

// manager begins the errors about the file.
const manager = "memory manager"

// load reads the checkpoint. It returns nil if there is none.
func load(path string) (*file, error) { return checkpoint.LoadState(path, manager, decode) }

func save(path string, f file) error { return checkpoint.SaveState(path, manager, f.encode()) }
