package cpus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
	"github.com/knarr-project/knarr/internal/kubelet/machinetest"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

// big has 2 sockets with 2 NUMA nodes each, of 4 cores with 2 CPUs: CPU n and n+16 are one core.
var big = machinetest.Machine{Sockets: 2, NodesPerSocket: 2, CachesPerNode: 2, CoresPerNode: 4, Threads: 2, NodeMemory: 1 << 30}

func set(list string) machine.CPUSet {
	s, err := machine.ParseCPUs(list)
	if err != nil {
		panic(err)
	}
	return s
}

func TestCPUsAreTakenCloseToEachOther(t *testing.T) {
	layout := big.Layout(t)
	for _, c := range []struct {
		name string
		o    options
		free string
		n    int
		want string
	}{
		{"whole cores of one node", options{}, "0-31", 4, "0-1,16-17"},
		{"a whole node", options{}, "0-31", 8, "0-3,16-19"},
		{"a whole socket", options{}, "0-31", 16, "0-7,16-23"},
		{"the node with the fewest free CPUs that has enough", options{}, "0-3,5,16-19,21", 2, "5,21"},
		{"a core in use for a single CPU", options{}, "0-3,17-19", 1, "0"},
		{"the socket if no node has enough", options{}, "0-2,16-18,8-15,24-31", 12, "8-13,24-29"},
		{"the rest from another socket", options{}, "0-7,16-23,8,24", 18, "0-8,16-24"},
		{"only whole cores", options{fullCores: true}, "0-1,4-7,16,20-23", 4, "4-5,20-21"},
		{"the smallest cache that has enough", options{alignByCache: true}, "1-3,17-19", 2, "1,17"},
		{"one cache instead of the first cores", options{alignByCache: true}, "1-3,17-19", 4, "2-3,18-19"},
		{"one CPU of each core", options{acrossCores: true}, "0-31", 4, "0-3"},
		{"second CPUs when all cores have one", options{acrossCores: true}, "0-3,16-19", 6, "0-3,16-17"},
		{"evenly from two nodes", options{acrossNodes: true}, "0-31", 12, "0-2,4-6,16-18,20-22"},
		{"one node if it has enough", options{acrossNodes: true}, "0-31", 6, "0-2,16-18"},
		{"evenly in whole cores", options{acrossNodes: true, fullCores: true}, "0-31", 10, "0-2,4-5,16-18,20-21"},
		{"nothing", options{}, "0-31", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := taker{layout, c.o}.take(set(c.free), c.n)
			if !ok || got.String() != c.want {
				t.Errorf("got %s (%v), want %s", got, ok, c.want)
			}
		})
	}
	if _, ok := (taker{layout, options{}}).take(set("0-3"), 5); ok {
		t.Error("5 of 4 CPUs were taken")
	}
}

func TestTakeGivesExactlyWhatWasAsked(t *testing.T) {
	layout := big.Layout(t)
	rapid.Check(t, func(t *rapid.T) {
		free := machine.CPUs(rapid.SliceOfDistinct(rapid.IntRange(0, 31), rapid.ID[int]).Draw(t, "free")...)
		o := options{acrossNodes: rapid.Bool().Draw(t, "acrossNodes"), alignByCache: rapid.Bool().Draw(t, "cache"), acrossCores: rapid.Bool().Draw(t, "acrossCores")}
		n := rapid.IntRange(0, 32).Draw(t, "n")
		got, ok := taker{layout, o}.take(free, n)
		if ok != (n <= free.Len()) || ok && (got.Len() != n || !got.Within(free)) {
			t.Fatalf("%d of %s: %s, %v", n, free, got, ok)
		}
	})
}

func newManager(t testing.TB, m machinetest.Machine, change ...func(*Config)) *Manager {
	t.Helper()
	c := Config{Policy: PolicyStatic, Layout: m.Layout(t), ReservedMilliCPU: 500, StateFile: filepath.Join(t.TempDir(), "cpu_manager_state")}
	for _, f := range change {
		f(&c)
	}
	manager, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

// container requests and is limited to this many CPUs.
func container(name, cpu string) corev1.Container {
	l := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Mi")}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: l, Limits: l}}
}

func podOf(uid string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: containers}}
}

func admit(t testing.TB, m *Manager, pod *corev1.Pod) *topology.Refusal {
	t.Helper()
	top, err := topology.New(topology.Config{Distances: m.layout.Distances()})
	if err != nil {
		t.Fatal(err)
	}
	top.Add(m)
	return top.Admit(pod)
}

func TestWholeCPUsOfGuaranteedPodsAreExclusive(t *testing.T) {
	m := newManager(t, big)
	burstable := container("burstable", "2")
	burstable.Resources.Limits = nil
	if r := admit(t, m, podOf("a", container("two", "2"), container("half", "500m"))); r != nil {
		t.Fatal(r)
	}
	if r := admit(t, m, podOf("b", burstable)); r != nil {
		t.Fatal(r)
	}
	// CPU 0 is reserved. Its sibling 16 stays free, since whole cores go first.
	for _, c := range []struct {
		pod, container, want string
		exclusive            bool
	}{{"a", "two", "1,17", true}, {"a", "half", "0,2-16,18-31", false}, {"b", "burstable", "0,2-16,18-31", false}} {
		got, exclusive := m.Set(types.UID(c.pod), c.container)
		if got.String() != c.want || exclusive != c.exclusive {
			t.Errorf("%s/%s: %s, exclusive %v", c.pod, c.container, got, exclusive)
		}
	}
	m.Release("a")
	if got, _ := m.Set("b", "burstable"); got.String() != "0-31" {
		t.Errorf("pool after the release: %s", got)
	}
}

func TestContainersTakeOverTheCPUsOfInitContainers(t *testing.T) {
	m := newManager(t, machinetest.Machine{Sockets: 1, NodesPerSocket: 1, CoresPerNode: 5, Threads: 1})
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("sidecar", "1")
	sidecar.RestartPolicy = &always
	pod := podOf("a", container("main", "2"))
	pod.Spec.InitContainers = []corev1.Container{container("first", "2"), sidecar, container("second", "3")}
	if n := wantedByPod(pod); n != 4 {
		t.Errorf("the pod wants %d", n)
	}
	if r := admit(t, m, pod); r != nil {
		t.Fatal(r)
	}
	get := func(name string) machine.CPUSet { s, _ := m.Set("a", name); return s }
	if s := get("sidecar"); !s.Within(get("first")) || !s.And(get("second")).Empty() || !s.And(get("main")).Empty() {
		t.Errorf("sidecar %s, first %s, second %s, main %s", s, get("first"), get("second"), get("main"))
	}
	if !get("main").Within(get("first").Union(get("second"))) {
		t.Errorf("main %s takes nothing over", get("main"))
	}
	if pool, exclusive := m.PoolSize(); pool != 0 || exclusive != 4 {
		t.Errorf("pool %d, exclusive %d", pool, exclusive)
	}
}

func TestRequestsThatDoNotFitAreRefused(t *testing.T) {
	full := func(c *Config) { c.Options = map[string]string{optionFullCores: "true"} }
	r := admit(t, newManager(t, big), podOf("a", container("main", "32")))
	if r == nil || r.Reason != topology.ReasonUnexpected || r.Message != "Allocate failed due to not enough cpus available to satisfy request: requested=32, available=31, which is unexpected" {
		t.Errorf("%+v", r)
	}
	r = admit(t, newManager(t, big, full), podOf("a", container("main", "3")))
	if r == nil || r.Reason != "SMTAlignmentError" || r.Message != "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2" {
		t.Errorf("%+v", r)
	}
	r = admit(t, newManager(t, big, full), podOf("a", container("main", "32")))
	if r == nil || r.Message != "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 30, requested CPUs = 32, CPUs per core = 2" {
		t.Errorf("%+v", r)
	}
}

func TestHintsListTheNodesThatHaveEnough(t *testing.T) {
	two := machinetest.Machine{Sockets: 2, NodesPerSocket: 1, CoresPerNode: 4, Threads: 1}
	m := newManager(t, two)
	for n, want := range map[string]string{"2": "0:true 1:true 0,1:false", "4": "1:true 0,1:false", "6": "0,1:true", "8": "", "500m": ""} {
		c := container("main", n)
		var got []string
		for _, h := range m.Hints(podOf("a", c), &c)[resourceName] {
			got = append(got, fmt.Sprintf("%s:%v", h.Nodes, h.Preferred))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s CPUs: %v, want %s", n, got, want)
		}
	}
	socket := newManager(t, machinetest.Machine{Sockets: 2, NodesPerSocket: 2, CoresPerNode: 2, Threads: 1}, func(c *Config) {
		c.AlphaOptions, c.Options = true, map[string]string{optionAlignBySocket: "true"}
	})
	c := container("main", "2")
	for _, h := range socket.Hints(podOf("a", c), &c)[resourceName] {
		if want := len(socket.socketsOf(h.Nodes)) == 1; h.Preferred != want {
			t.Errorf("nodes %s preferred: %v", h.Nodes, h.Preferred)
		}
	}
}

func TestTheAssignmentSurvivesARestart(t *testing.T) {
	m := newManager(t, big)
	pod := podOf("a", container("main", "2"))
	if r := admit(t, m, pod); r != nil {
		t.Fatal(r)
	}
	again, err := New(m.Config)
	if err != nil {
		t.Fatal(err)
	}
	if r := admit(t, again, pod); r != nil { // the pod keeps its CPUs
		t.Fatal(r)
	}
	if got, exclusive := again.Set("a", "main"); got.String() != "1,17" || !exclusive {
		t.Errorf("got %s", got)
	}
	if h := again.Hints(pod, &pod.Spec.Containers[0])[resourceName]; len(h) != 1 || h[0].Nodes != topology.Nodes(0) || !h[0].Preferred {
		t.Errorf("hints %v", h)
	}
	for _, c := range []struct {
		name, want string
		change     func(*Config)
	}{
		{"another policy", `cpuManagerPolicy: configured policy "none" differs from state checkpoint policy "static"; drain the node, remove`, func(c *Config) { c.Policy = PolicyNone }},
		{"another machine", "CPU manager state: the file has CPUs 0-31, but the node may use 0-1; drain", func(c *Config) {
			c.Layout = machinetest.Machine{Sockets: 1, NodesPerSocket: 1, CoresPerNode: 2, Threads: 1}.Layout(t)
		}},
		{"other reserved CPUs", "CPU manager state: reserved CPUs 1 are exclusive; drain", func(c *Config) { c.Reserved = set("1") }},
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
		{func(c *Config) { c.Policy = "fast" }, `cpuManagerPolicy: "fast" is not one of none, static`},
		{func(c *Config) { c.ReservedMilliCPU = 0 }, "cpuManagerPolicy static: the policy needs a reserved CPU; set reservedSystemCPUs, or cpu in systemReserved or kubeReserved"},
		{func(c *Config) { c.Reserved = set("40") }, "reservedSystemCPUs: CPUs 40 are not online; online are 0-31"},
		{func(c *Config) { c.Options = map[string]string{"fast": "true"} }, `cpuManagerPolicyOptions: unknown option "fast"; allowed are align-by-socket, distribute-cpus-across-cores, distribute-cpus-across-numa, full-pcpus-only, prefer-align-cpus-by-uncorecache, strict-cpu-reservation`},
		{func(c *Config) { c.Options = map[string]string{optionStrict: "maybe"} }, `cpuManagerPolicyOptions[strict-cpu-reservation]: "maybe" is not true or false`},
		{func(c *Config) { c.Options = map[string]string{optionAlignBySocket: "true"} }, "cpuManagerPolicyOptions[align-by-socket]: the option needs the feature gate CPUManagerPolicyAlphaOptions"},
		{func(c *Config) {
			c.Options = map[string]string{optionAcrossNodes: "true", optionAlignByCache: "true"}
		}, "cpuManagerPolicyOptions: prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa exclude each other"},
	} {
		config := Config{Policy: PolicyStatic, Layout: big.Layout(t), ReservedMilliCPU: 500, StateFile: filepath.Join(t.TempDir(), "state")}
		c.change(&config)
		if _, err := New(config); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	strict := newManager(t, big, func(c *Config) { c.Options = map[string]string{optionStrict: "true"} })
	if got, _ := strict.Set("any", "any"); got.String() != "1-31" {
		t.Errorf("strict pool: %s", got)
	}
}

// upstream is a file of upstream's kubelet v1.36.
const upstream = `{"policyName":"static","defaultCpuSet":"0-1,4-5","entries":{"uid-0":{"b":"7"},"uid-1":{"b":"6","main":"2-3"}},"checksum":1674266481}`

func TestTheStateFileIsUpstreams(t *testing.T) {
	s, err := decode([]byte(upstream))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.encode()); got != upstream {
		t.Errorf("got  %s\nwant %s", got, upstream)
	}
	empty := `{"policyName":"static","defaultCpuSet":"0-1,4-5","checksum":1232366832}`
	if s, err = decode([]byte(empty)); err != nil || string(s.encode()) != empty {
		t.Errorf("%v, %s", err, s.encode())
	}
	if _, err := decode([]byte(strings.Replace(upstream, "0-1", "0-2", 1))); err == nil {
		t.Error("a changed file was read")
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(path); err == nil || !strings.Contains(err.Error(), "drain the node and remove the file") {
		t.Errorf("%v", err)
	}
}

func FuzzState(f *testing.F) {
	f.Add(upstream)
	f.Add(`{"policyName":"none","defaultCpuSet":"","checksum":0}`)
	f.Add(`{"entries":{"a":{"b":"0-9999"}}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		s, err := decode([]byte(raw))
		if err != nil {
			return
		}
		if _, err := decode(s.encode()); err != nil {
			t.Errorf("%s: %v", s.encode(), err)
		}
	})
}

// TestNoCPUBelongsToTwoPods admits and releases pods at random, with restarts of the node agent.
func TestNoCPUBelongsToTwoPods(t *testing.T) {
	layout := big.Layout(t)
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		config := Config{Policy: PolicyStatic, Layout: layout, ReservedMilliCPU: 1500, StateFile: filepath.Join(dir, fmt.Sprint(run))}
		if rapid.Bool().Draw(r, "full cores") {
			config.Options = map[string]string{optionFullCores: "true"}
		}
		m, err := New(config)
		if err != nil {
			r.Fatal(err)
		}
		for step := range rapid.IntRange(1, 15).Draw(r, "steps") {
			uid := fmt.Sprint(rapid.IntRange(0, 5).Draw(r, "pod"))
			switch rapid.IntRange(0, 3).Draw(r, "action") {
			case 0:
				m.Release(types.UID(uid))
			case 1:
				if m, err = New(config); err != nil {
					r.Fatal(err)
				}
			default:
				pod := podOf(fmt.Sprintf("%s-%d", uid, step), container("main", fmt.Sprint(rapid.IntRange(1, 9).Draw(r, "cpus"))))
				pod.Spec.InitContainers = []corev1.Container{container("init", fmt.Sprint(rapid.IntRange(1, 9).Draw(r, "init")))}
				admit(t, m, pod)
			}
			m.mu.Lock()
			twice, both, lost := m.state.shared(), m.state.pool.And(m.state.taken()), layout.All().Minus(m.state.pool.Union(m.state.taken()))
			pool := m.state.pool
			m.mu.Unlock()
			if !twice.Empty() || !both.Empty() || !lost.Empty() || !m.reserved.Within(pool) {
				r.Fatalf("twice %s, in pool and taken %s, lost %s, pool %s", twice, both, lost, pool)
			}
		}
	})
}
