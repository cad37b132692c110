package kubelet

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/machinetest"
)

// placing turns the static policies on, for a machine of 2 nodes with 2 CPUs and 4 GiB each.
func placing(t *testing.T) func(*bench) {
	m := machinetest.Machine{Sockets: 2, NodesPerSocket: 1, CoresPerNode: 2, Threads: 1, NodeMemory: 4 << 30}
	root := m.Write(t)
	return func(b *bench) {
		b.cfg.MachineRoot = root
		s := b.cfg.Settings
		s.CPUManagerPolicy, s.MemoryManagerPolicy, s.TopologyManagerPolicy = "static", "Static", "single-numa-node"
		s.SystemReserved = map[string]string{"cpu": "100m", "memory": "64Mi"}
		s.ReservedMemory = []kubeletconfig.MemoryReservation{{NumaNode: 0, Limits: corev1.ResourceList{"memory": resource.MustParse("64Mi")}}}
	}
}

func guaranteed(cpu, memory string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		l := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: l, Limits: l}
		p.Spec.Containers[0].Name = p.Name
	}
}

func TestAGuaranteedPodGetsCPUsAndMemoryOfOneNode(t *testing.T) {
	b := newBench(t, placing(t))
	b.create(pod("shared", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "shared" }))
	b.await("shared", "ready", ready)
	if got := b.cri.Config("shared", 0).Linux.Resources.CpusetCpus; got != "0-3" {
		t.Errorf("the shared pool is %s", got)
	}
	b.create(pod("pinned", guaranteed("1", "128Mi")))
	b.await("pinned", "ready", ready)
	r := b.cri.Config("pinned", 0).Linux.Resources
	if r.CpusetCpus != "1" || r.CpusetMems != "0" || r.CpuQuota != -1 {
		t.Errorf("resources: %+v", r)
	}
	for deadline := time.Now().Add(10 * time.Second); !slices.Contains(b.cri.Log(), "move shared-0 cpus=0,2-3"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the other pod was not moved: %q", b.cri.Log())
		}
	}
	b.create(pod("large", guaranteed("1", "5Gi")))
	p := b.await("large", "refused", phase(corev1.PodFailed))
	if p.Status.Reason != "TopologyAffinityError" && !strings.HasPrefix(p.Status.Reason, "OutOf") {
		t.Errorf("reason %s: %s", p.Status.Reason, p.Status.Message)
	}
	b.stop()
	b.start() // the node agent restarts, and the pod keeps its CPUs
	b.await("pinned", "ready", ready)
	for _, name := range []string{"cpu_manager_state", "memory_manager_state"} {
		if raw, err := os.ReadFile(filepath.Join(b.cfg.RootDir, name)); err != nil || !strings.Contains(string(raw), `"pinned":`) {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
	b.delete("pinned")
	b.gone("pinned")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		pool, exclusive := b.k.places.cpus.PoolSize()
		if pool == 3 && exclusive == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("pool %d, exclusive %d", pool, exclusive)
		}
	}
}

func TestAnExclusivePodCannotBeResized(t *testing.T) {
	b := newBench(t, placing(t))
	b.create(pod("pinned", guaranteed("1", "128Mi")))
	b.await("pinned", "ready", ready)
	b.resize("pinned", cpu("500m"))
	p := b.await("pinned", "infeasible", func(p *corev1.Pod) bool { return condition(p, corev1.PodResizePending) != nil })
	if c := condition(p, corev1.PodResizePending); c.Reason != "Infeasible" || c.Message != "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy" {
		t.Errorf("condition: %+v", c)
	}
}

func TestAFullMachineRefusesExclusiveCPUs(t *testing.T) {
	b := newBench(t, placing(t), func(b *bench) {
		b.cfg.MachineRoot = machinetest.Machine{Sockets: 1, NodesPerSocket: 1, CoresPerNode: 1, Threads: 1, NodeMemory: 4 << 30}.Write(t)
	})
	b.create(pod("pinned", guaranteed("1", "128Mi")))
	p := b.await("pinned", "refused", phase(corev1.PodFailed))
	if p.Status.Reason != "TopologyAffinityError" || p.Status.Message != "Pod was rejected: Resources cannot be allocated with Topology locality" {
		t.Errorf("%s: %s", p.Status.Reason, p.Status.Message)
	}
	b.stop()
}

func TestThePodResourcesAPIShowsExclusiveCPUsAndBoundMemory(t *testing.T) {
	b := newBench(t, placing(t))
	p := b.create(pod("pinned", guaranteed("1", "128Mi")))
	b.await("pinned", "ready", ready)
	at := b.k.places
	if got := at.exclusiveCPUs(p.UID, "pinned"); !slices.Equal(got, []int64{1}) {
		t.Errorf("CPUs %v", got)
	}
	if got := at.exclusiveCPUs("other", "shared"); got != nil {
		t.Errorf("a container of the shared pool has CPUs %v", got)
	}
	if got := at.allCPUs(); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("all CPUs %v", got)
	}
	if got := at.boundMemory(p.UID, "pinned"); len(got) != 1 || got[0].MemoryType != "memory" || got[0].Size != 128<<20 || len(got[0].Topology.Nodes) != 1 || got[0].Topology.Nodes[0].ID != 0 {
		t.Errorf("memory %v", got)
	}
	if got := at.allMemory(); len(got) != 2 || got[0].Size != 4<<30-64<<20 || got[1].Size != 4<<30 {
		t.Errorf("all memory %v", got)
	}
	w := httptest.NewRecorder()
	b.k.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if want := `kubelet_container_aligned_compute_resources_count{boundary="numa_node",scope="container"} 1`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("the metrics have no %s", want)
	}
}
