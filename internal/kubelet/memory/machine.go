package memory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

// PageName is the resource of huge pages of this size in bytes, such as hugepages-2Mi.
func PageName(size uint64) corev1.ResourceName {
	return corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(int64(size), resource.BinarySI).String())
}

func isMemory(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// emptyMachine is the state of the machine's nodes without any block.
func emptyMachine(l *machine.Layout, reserved []kubeletconfig.MemoryReservation) (map[int]*nodeState, error) {
	nodes := map[int]*nodeState{}
	for id, n := range l.Nodes {
		huge := uint64(0)
		s := &nodeState{Memory: map[corev1.ResourceName]*table{}, Cells: []int{id}}
		for size, count := range n.HugePages {
			s.Memory[PageName(size)] = &table{Total: size * count, Allocatable: size * count}
			huge += size * count
		}
		s.Memory[corev1.ResourceMemory] = &table{Total: n.Memory, Allocatable: n.Memory - min(huge, n.Memory)}
		nodes[id] = s
	}
	for i, r := range reserved {
		n := nodes[int(r.NumaNode)]
		if n == nil {
			return nil, fmt.Errorf("reservedMemory[%d].numaNode: %d is not a NUMA node of this machine; it has %v", i, r.NumaNode, slices.Sorted(maps.Keys(nodes)))
		}
		for name, q := range r.Limits {
			t := n.Memory[name]
			switch {
			case !isMemory(name):
				return nil, fmt.Errorf("reservedMemory[%d].limits: %q is neither memory nor huge pages", i, name)
			case t == nil || q.Value() < 0 || uint64(q.Value()) > t.Allocatable:
				return nil, fmt.Errorf("reservedMemory[%d].limits[%s]: node %d does not have %s", i, name, r.NumaNode, q.String())
			}
			t.SystemReserved, t.Allocatable = uint64(q.Value()), t.Allocatable-uint64(q.Value())
		}
	}
	for _, n := range nodes {
		for _, t := range n.Memory {
			t.Free = t.Allocatable
		}
	}
	return nodes, nil
}

// checkReserved compares reservedMemory with the memory that allocatable leaves out. Both must
// agree: the scheduler counts with the latter.
func checkReserved(reserved []kubeletconfig.MemoryReservation, node corev1.ResourceList) error {
	sums := corev1.ResourceList{corev1.ResourceMemory: {}}
	for _, r := range reserved {
		for name, q := range r.Limits {
			sum := sums[name]
			sum.Add(q)
			sums[name] = sum
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		sum, want := sums[name], node[name]
		if sum.Cmp(want) != 0 {
			errs = append(errs, fmt.Errorf("reservedMemory: the sum of %s is %s, but kubeReserved, systemReserved and evictionHard reserve %s", name, sum.String(), want.String()))
		}
	}
	return errors.Join(errs...)
}

// fill returns the state of the nodes with all blocks. It fails if a block does not fit.
func fill(empty map[int]*nodeState, all blocks) (map[int]*nodeState, error) {
	nodes := map[int]*nodeState{}
	for id, n := range empty {
		c := &nodeState{Memory: map[corev1.ResourceName]*table{}, Cells: n.Cells}
		for name, t := range n.Memory {
			copied := *t
			c.Memory[name] = &copied
		}
		nodes[id] = c
	}
	var list []block
	for _, containers := range all {
		for _, own := range containers {
			list = append(list, own...)
		}
	}
	slices.SortStableFunc(list, func(a, b block) int {
		return cmp.Or(cmp.Compare(len(a.Affinity), len(b.Affinity)), cmp.Compare(a.nodes(), b.nodes()), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Size, b.Size))
	})
	for _, b := range list {
		left := b.Size
		for _, id := range b.Affinity {
			n := nodes[id]
			if n == nil || n.Memory[b.Type] == nil {
				return nil, fmt.Errorf("NUMA node %d has no %s", id, b.Type)
			}
			if n.Assignments > 0 && !slices.Equal(n.Cells, b.Affinity) {
				return nil, fmt.Errorf("NUMA node %d is in two groups, %v and %v", id, n.Cells, b.Affinity)
			}
			n.Assignments++
			n.Cells = b.Affinity
			t := n.Memory[b.Type]
			part := min(left, t.Free)
			t.Free, t.Reserved, left = t.Free-part, t.Reserved+part, left-part
		}
		if left > 0 {
			return nil, fmt.Errorf("NUMA nodes %v lack %d bytes of %s", b.Affinity, left, b.Type)
		}
	}
	return nodes, nil
}

// sum adds up a number of one resource over nodes.
func sum(nodes map[int]*nodeState, s topology.NodeSet, name corev1.ResourceName, of func(*table) uint64) uint64 {
	total := uint64(0)
	for _, id := range s.IDs() {
		if t := nodes[id].Memory[name]; t != nil {
			total += of(t)
		}
	}
	return total
}

func freeOf(t *table) uint64        { return t.Free }
func allocatableOf(t *table) uint64 { return t.Allocatable }

// joins reports whether a block may use exactly these nodes: each is unused, or in this very group.
func joins(nodes map[int]*nodeState, s topology.NodeSet) bool {
	for _, id := range s.IDs() {
		if n := nodes[id]; n.Assignments > 0 && topology.Nodes(n.Cells...) != s {
			return false
		}
	}
	return true
}
