package machine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
	"github.com/knarr-project/knarr/internal/kubelet/machinetest"
)

func TestALayoutHasSocketsNodesCoresCachesAndMemory(t *testing.T) {
	l := machinetest.Machine{
		Sockets: 2, NodesPerSocket: 2, CachesPerNode: 2, CoresPerNode: 4, Threads: 2, Offline: []int{3, 16},
		NodeMemory: 8 << 30, HugePages: map[uint64]uint64{2 << 20: 10, 1 << 30: 1},
	}.Layout(t)
	if got := l.All().String(); got != "0-2,4-15,17-31" {
		t.Errorf("online: %s", got)
	}
	for _, want := range []machine.CPU{
		{ID: 0, Core: 0, Socket: 0, Node: 0, Cache: 0},
		{ID: 19, Core: 19, Socket: 0, Node: 0, Cache: 2}, // its sibling 3 is offline
		{ID: 18, Core: 2, Socket: 0, Node: 0, Cache: 2},
		{ID: 31, Core: 15, Socket: 1, Node: 3, Cache: 14},
	} {
		if got := l.CPUs[want.ID]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	n := l.Nodes[3]
	if n.CPUs.String() != "12-15,28-31" || n.Memory != 8<<30 || n.Distances[2] != 12 || n.Distances[0] != 32 || n.Distances[3] != 10 {
		t.Errorf("node 3: %+v", n)
	}
	if huge := l.HugePages(); huge[2<<20] != 80<<20 || huge[1<<30] != 4<<30 {
		t.Errorf("huge pages: %v", huge)
	}
}

func TestAKernelWithoutNUMAHasOneNode(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"sys/devices/system/cpu/online": "0-1\n", "proc/meminfo": "MemTotal:       1024 kB\n", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := machine.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if n := l.Nodes[0]; len(l.Nodes) != 1 || n.CPUs.String() != "0-1" || n.Memory != 1<<20 || n.HugePages[2<<20] != 3 {
		t.Errorf("nodes: %+v", l.Nodes)
	}
}

func TestThisMachineHasALayout(t *testing.T) {
	l, err := machine.Read("/")
	if err != nil {
		t.Fatal(err)
	}
	if l.All().Empty() || len(l.Nodes) == 0 {
		t.Errorf("layout: %+v", l)
	}
}

func TestBrokenFilesAreNamed(t *testing.T) {
	for file, content := range map[string]string{
		"cpu/online": "0-", "node/node0/cpulist": "x", "node/node0/meminfo": "none", "node/node0/distance": "10 20 30", "cpu/cpu0/topology/physical_package_id": "a",
	} {
		root := machinetest.Machine{Sockets: 1, NodesPerSocket: 1, CoresPerNode: 2, Threads: 1}.Write(t)
		if err := os.WriteFile(filepath.Join(root, "sys/devices/system", file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := machine.Read(root); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSetsBehaveAsSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(rapid.IntRange(0, 200))
		a, b := list.Draw(t, "a"), list.Draw(t, "b")
		x, y := machine.CPUs(a...), machine.CPUs(b...)
		in := func(list []int, id int) bool {
			for _, v := range list {
				if v == id {
					return true
				}
			}
			return false
		}
		for id := -1; id < 202; id++ {
			if x.Union(y).Has(id) != (in(a, id) || in(b, id)) || x.And(y).Has(id) != (in(a, id) && in(b, id)) || x.Minus(y).Has(id) != (in(a, id) && !in(b, id)) {
				t.Fatalf("CPU %d of %v and %v", id, a, b)
			}
		}
		again, err := machine.ParseCPUs(x.String())
		if err != nil || !again.Equal(x) || len(x.List()) != x.Len() {
			t.Fatalf("%q: %v", x, err)
		}
	})
}

func FuzzParseCPUs(f *testing.F) {
	for _, seed := range []string{"", "0", "0-3,8", "8191", "8192", "3-1", "0-4294967295", "-1", "1,,2", "a", " 1\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		s, err := machine.ParseCPUs(list)
		if err != nil {
			return
		}
		again, err := machine.ParseCPUs(s.String())
		if err != nil || !again.Equal(s) {
			t.Errorf("%q became %q: %v", list, s, err)
		}
	})
}
