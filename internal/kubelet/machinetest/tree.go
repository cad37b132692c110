// Package machinetest makes up machines for tests: trees of files as the kernel has them.
package machinetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
)

// Machine describes a machine with equal sockets.
type Machine struct {
	Sockets        int
	NodesPerSocket int
	CachesPerNode  int // last-level caches; 0 means no level above 2
	CoresPerNode   int
	Threads        int // CPUs per core; a core's CPUs are numbered far apart, as on most machines
	Offline        []int
	NodeMemory     uint64 // bytes
	HugePages      map[uint64]uint64
}

// Write writes the machine's files below a new folder.
func (m Machine) Write(t testing.TB) (root string) {
	t.Helper()
	root = t.TempDir()
	write := func(name, content string) {
		path := filepath.Join(root, "sys/devices/system", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	nodes, cores := m.Sockets*m.NodesPerSocket, m.Sockets*m.NodesPerSocket*m.CoresPerNode
	var online, nodeIDs []int
	for cpu := range cores * m.Threads {
		if !has(m.Offline, cpu) {
			online = append(online, cpu)
		}
	}
	for node := range nodes {
		nodeIDs = append(nodeIDs, node)
	}
	write("cpu/online", machine.CPUs(online...).String())
	write("node/online", machine.CPUs(nodeIDs...).String())
	inNode, inCache := map[int][]int{}, map[int][]int{}
	cacheOf := func(core int) int {
		perCache := m.CoresPerNode / max(m.CachesPerNode, 1)
		return core / perCache
	}
	for _, cpu := range online {
		core := cpu % cores
		inNode[core/m.CoresPerNode] = append(inNode[core/m.CoresPerNode], cpu)
		inCache[cacheOf(core)] = append(inCache[cacheOf(core)], cpu)
	}
	for _, cpu := range online {
		core := cpu % cores
		var siblings []int
		for _, other := range online {
			if other%cores == core {
				siblings = append(siblings, other)
			}
		}
		dir := fmt.Sprintf("cpu/cpu%d/", cpu)
		write(dir+"topology/core_cpus_list", machine.CPUs(siblings...).String())
		write(dir+"topology/physical_package_id", fmt.Sprint(core/m.CoresPerNode/m.NodesPerSocket))
		write(dir+"cache/index0/level", "1")
		write(dir+"cache/index0/shared_cpu_list", machine.CPUs(siblings...).String())
		if m.CachesPerNode > 0 {
			write(dir+"cache/index1/level", "3")
			write(dir+"cache/index1/shared_cpu_list", machine.CPUs(inCache[cacheOf(core)]...).String())
		}
	}
	for node := range nodes {
		dir := fmt.Sprintf("node/node%d/", node)
		write(dir+"cpulist", machine.CPUs(inNode[node]...).String())
		write(dir+"meminfo", fmt.Sprintf("Node %d MemTotal:  %d kB\nNode %d MemFree: 1 kB", node, m.NodeMemory>>10, node))
		var row []string
		for other := range nodes {
			switch {
			case other == node:
				row = append(row, "10")
			case other/m.NodesPerSocket == node/m.NodesPerSocket:
				row = append(row, "12")
			default:
				row = append(row, "32")
			}
		}
		write(dir+"distance", strings.Join(row, " "))
		for size, count := range m.HugePages {
			write(fmt.Sprintf("%shugepages/hugepages-%dkB/nr_hugepages", dir, size>>10), fmt.Sprint(count))
		}
	}
	return root
}

// Layout writes the machine's files and reads them.
func (m Machine) Layout(t testing.TB) *machine.Layout {
	t.Helper()
	l, err := machine.Read(m.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func has(list []int, id int) bool {
	for _, x := range list {
		if x == id {
			return true
		}
	}
	return false
}
