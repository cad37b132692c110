package memory

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"github.com/knarr-project/knarr/internal/kubelet/machinetest"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

// machineOf returns nodes of 4 GiB. Huge pages of 2 MiB take 1 GiB of each.
func machineOf(sockets, nodesPerSocket int) machinetest.Machine {
	return machinetest.Machine{Sockets: sockets, NodesPerSocket: nodesPerSocket, CoresPerNode: 1, Threads: 1, NodeMemory: 4 << 30, HugePages: map[uint64]uint64{2 << 20: 512}}
}

func memory(q string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(q)}
}

func configOf(t testing.TB, m machinetest.Machine) Config {
	return Config{
		Policy: PolicyStatic, Layout: m.Layout(t), NodeReserved: memory("1Gi"), StateFile: filepath.Join(t.TempDir(), "memory_manager_state"),
		Reserved: []kubeletconfig.MemoryReservation{{NumaNode: 0, Limits: memory("1Gi")}},
	}
}

func newManager(t testing.TB, m machinetest.Machine) *Manager {
	t.Helper()
	manager, err := New(configOf(t, m))
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

// container requests and is limited to this much; huge may be "".
func container(name, size, huge string) corev1.Container {
	l := memory(size)
	l[corev1.ResourceCPU] = resource.MustParse("1")
	if huge != "" {
		l["hugepages-2Mi"] = resource.MustParse(huge)
	}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: l, Limits: l}}
}

func podOf(uid string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: containers}}
}

func admit(t testing.TB, m *Manager, policy string, pod *corev1.Pod) *topology.Refusal {
	t.Helper()
	top, err := topology.New(topology.Config{Policy: policy, Distances: m.Layout.Distances()})
	if err != nil {
		t.Fatal(err)
	}
	top.Add(m)
	return top.Admit(pod)
}

func hintsOf(m *Manager, c corev1.Container, name string) string {
	var out []string
	for _, h := range m.Hints(podOf("new", c), &c)[name] {
		out = append(out, fmt.Sprintf("%s:%v", h.Nodes, h.Preferred))
	}
	return strings.Join(out, " ")
}

func TestHintsListTheNodesThatHaveRoom(t *testing.T) {
	m := newManager(t, machineOf(2, 1)) // 2 GiB and 3 GiB to allocate
	for _, c := range []struct{ size, huge, want string }{
		{"1Gi", "", "0:true 1:true 0,1:false"},
		{"3Gi", "", "1:true 0,1:false"},
		{"4Gi", "", "0,1:true"},
		{"6Gi", "", ""},
		{"1Gi", "1Gi", "0:true 1:true 0,1:false"},
		{"1Gi", "2Gi", "0,1:false"},
	} {
		if got := hintsOf(m, container("main", c.size, c.huge), "memory"); got != c.want {
			t.Errorf("%s and %s: %s, want %s", c.size, c.huge, got, c.want)
		}
	}
	if got := hintsOf(m, container("main", "1Gi", "2Gi"), "hugepages-2Mi"); got != "0,1:true" {
		t.Errorf("huge pages: %s", got)
	}
}

func TestGuaranteedContainersAreBoundToNodes(t *testing.T) {
	m := newManager(t, machineOf(2, 1))
	if r := admit(t, m, topology.PolicySingleNUMANode, podOf("a", container("main", "2Gi", "512Mi"))); r != nil {
		t.Fatal(r)
	}
	if r := admit(t, m, topology.PolicySingleNUMANode, podOf("b", container("main", "2Gi", ""))); r != nil {
		t.Fatal(r)
	}
	if a, b := m.Nodes("a", "main"), m.Nodes("b", "main"); a != topology.Nodes(0) || b != topology.Nodes(1) {
		t.Errorf("nodes %s and %s", a, b)
	}
	if r := admit(t, m, topology.PolicySingleNUMANode, podOf("c", container("main", "2Gi", ""))); r == nil || r.Reason != topology.ReasonAffinity {
		t.Errorf("%+v", r)
	}
	if r := admit(t, m, topology.PolicyNone, podOf("c", container("main", "2Gi", ""))); r == nil || !strings.Contains(r.Message, "no set of NUMA nodes has enough memory") {
		t.Errorf("%+v", r)
	}
	burstable := container("main", "1Gi", "")
	burstable.Resources.Limits = nil
	if r := admit(t, m, topology.PolicyNone, podOf("d", burstable)); r != nil || m.Nodes("d", "main") != 0 {
		t.Errorf("%+v, nodes %s", r, m.Nodes("d", "main"))
	}
	m.Release("a")
	if got := hintsOf(m, container("main", "2Gi", "1Gi"), "memory"); got != "0:true" {
		t.Errorf("hints after the release: %s", got)
	}
}

func TestNodesOfAGroupStayTogether(t *testing.T) {
	m := newManager(t, machineOf(2, 2)) // 2, 3, 3 and 3 GiB
	if r := admit(t, m, topology.PolicyBestEffort, podOf("a", container("main", "4Gi", ""))); r != nil {
		t.Fatal(r)
	}
	group := m.Nodes("a", "main")
	if group.Len() != 2 {
		t.Fatalf("group %s", group)
	}
	c := container("main", "512Mi", "")
	for _, h := range m.Hints(podOf("new", c), &c)["memory"] {
		if h.Nodes&group != 0 && h.Nodes != group {
			t.Errorf("hint %s cuts the group %s", h.Nodes, group)
		}
	}
	m.Release("a")
	if m.nodes[0].Assignments != 0 || len(m.nodes[0].Cells) != 1 {
		t.Errorf("node 0: %+v", m.nodes[0])
	}
}

func TestContainersTakeOverTheMemoryOfInitContainers(t *testing.T) {
	m := newManager(t, machineOf(1, 1)) // 2 GiB
	pod := podOf("a", container("main", "1Gi", ""), container("other", "512Mi", ""))
	pod.Spec.InitContainers = []corev1.Container{container("init", "2Gi", "")}
	if got := m.podRequest(pod)[corev1.ResourceMemory]; got != 2<<30 {
		t.Errorf("the pod needs %d", got)
	}
	if r := admit(t, m, topology.PolicyNone, pod); r != nil {
		t.Fatal(r)
	}
	if free := m.nodes[0].Memory[corev1.ResourceMemory].Free; free != 0 {
		t.Errorf("free %d", free)
	}
	if left := m.all["a"]["init"][0].Size; left != 512<<20 {
		t.Errorf("the init container keeps %d", left)
	}
}

func TestTheAssignmentSurvivesARestart(t *testing.T) {
	m := newManager(t, machineOf(2, 1))
	pod := podOf("a", container("main", "2Gi", ""))
	if r := admit(t, m, topology.PolicyNone, pod); r != nil {
		t.Fatal(r)
	}
	again, err := New(m.Config)
	if err != nil {
		t.Fatal(err)
	}
	if r := admit(t, again, topology.PolicySingleNUMANode, pod); r != nil || again.Nodes("a", "main") != topology.Nodes(0) {
		t.Errorf("%+v, nodes %s", r, again.Nodes("a", "main"))
	}
	for _, c := range []struct {
		name, want string
		change     func(*Config)
	}{
		{"another policy", `memoryManagerPolicy: configured policy "None" differs from state checkpoint policy "Static"; drain the node, remove`, func(c *Config) { c.Policy = PolicyNone }},
		{"another machine", "memory manager state: NUMA node 1 had", func(c *Config) { c.Layout = machineOf(1, 1).Layout(t) }},
		{"another reservation", "memory manager state: NUMA node", func(c *Config) {
			c.Reserved = []kubeletconfig.MemoryReservation{{NumaNode: 1, Limits: memory("1Gi")}}
		}},
	} {
		changed := m.Config
		c.change(&changed)
		if _, err := New(changed); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Policy = "static" }, `memoryManagerPolicy: "static" is not one of None, Static`},
		{func(c *Config) { c.Reserved = nil }, "memoryManagerPolicy Static: the policy needs reservedMemory"},
		{func(c *Config) { c.NodeReserved = memory("2Gi") }, "reservedMemory: the sum of memory is 1Gi, but kubeReserved, systemReserved and evictionHard reserve 2Gi"},
		{func(c *Config) { c.Reserved[0].NumaNode = 7 }, "reservedMemory[0].numaNode: 7 is not a NUMA node of this machine; it has [0]"},
		{func(c *Config) {
			c.Reserved[0].Limits, c.NodeReserved = memory("8Gi"), memory("8Gi")
		}, "reservedMemory[0].limits[memory]: node 0 does not have 8Gi"},
	} {
		config := configOf(t, machineOf(1, 1))
		c.change(&config)
		if _, err := New(config); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// upstream is a file of upstream's kubelet v1.36.
const upstream = `{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"hugepages-2Mi":{"total":2,"systemReserved":0,"allocatable":2,"reserved":0,"free":2},"memory":{"total":1000,"systemReserved":10,"allocatable":990,"reserved":90,"free":900}},"cells":[0]},"1":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":1000,"systemReserved":10,"allocatable":990,"reserved":0,"free":990}},"cells":[1]}},"entries":{"uid-1":{"a":[{"numaAffinity":[0,1],"type":"memory","size":90},{"numaAffinity":[0],"type":"hugepages-2Mi","size":90}],"main":[{"numaAffinity":[0],"type":"memory","size":90}]}},"checksum":3532817670}`

func TestTheStateFileIsUpstreams(t *testing.T) {
	f, err := decode([]byte(upstream))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.encode()); got != upstream {
		t.Errorf("got  %s\nwant %s", got, upstream)
	}
	if _, err := decode([]byte(strings.Replace(upstream, `"size":90`, `"size":91`, 1))); err == nil {
		t.Error("a changed file was read")
	}
}

func FuzzState(f *testing.F) {
	f.Add(upstream)
	f.Add(`{"policyName":"None","machineState":{}}`)
	f.Add(`{"machineState":{"0":null}}`)
	f.Add(`{"entries":{"a":{"b":[{"numaAffinity":[99],"size":1}]}}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := decode([]byte(raw))
		if err != nil {
			return
		}
		if _, err := decode(c.encode()); err != nil {
			t.Errorf("%s: %v", c.encode(), err)
		}
	})
}

// TestMemoryIsNeverPromisedTwice admits and releases pods at random, with restarts of the node
// agent.
func TestMemoryIsNeverPromisedTwice(t *testing.T) {
	config := configOf(t, machineOf(2, 2))
	dir, run := t.TempDir(), 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		config.StateFile = filepath.Join(dir, fmt.Sprint(run))
		m, err := New(config)
		if err != nil {
			r.Fatal(err)
		}
		for step := range rapid.IntRange(1, 12).Draw(r, "steps") {
			switch rapid.IntRange(0, 4).Draw(r, "action") {
			case 0:
				m.Release(types.UID(fmt.Sprint(rapid.IntRange(0, 12).Draw(r, "pod"))))
			case 1:
				if m, err = New(config); err != nil {
					r.Fatal(err)
				}
			default:
				size := func(name string) string { return fmt.Sprintf("%dMi", rapid.IntRange(1, 5000).Draw(r, name)) }
				pod := podOf(fmt.Sprint(step), container("main", size("main"), ""), container("other", size("other"), ""))
				pod.Spec.InitContainers = []corev1.Container{container("init", size("init"), "")}
				admit(t, m, rapid.SampledFrom([]string{topology.PolicyNone, topology.PolicyBestEffort, topology.PolicyRestricted}).Draw(r, "policy"), pod)
			}
			total := uint64(0)
			for _, containers := range m.all {
				for _, list := range containers {
					for _, b := range list {
						total += b.Size
					}
				}
			}
			for _, n := range m.nodes {
				tb := n.Memory[corev1.ResourceMemory]
				if tb.Free+tb.Reserved != tb.Allocatable {
					r.Fatalf("table %+v", tb)
				}
				total -= tb.Reserved
			}
			if total != 0 {
				r.Fatalf("%d bytes are in blocks but not reserved", total)
			}
		}
	})
}
