package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/cpus"
	"github.com/knarr-project/knarr/internal/kubelet/machine"
	"github.com/knarr-project/knarr/internal/kubelet/memory"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// places gives pods exclusive CPUs and memory of NUMA nodes (worker.Placement).
type places struct {
	k        *Kubelet
	topology *topology.Manager
	cpus     *cpus.Manager
	memory   *memory.Manager
	// moved asks for an update of the containers in the shared CPU pool.
	moved chan struct{}
}

// newPlaces makes the managers. By default no policy needs the machine's layout, so it is not read.
func newPlaces(k *Kubelet) (*places, error) {
	s := k.Settings
	p := &places{k: k, moved: make(chan struct{}, 1)}
	layout := &machine.Layout{}
	if s.CPUManagerPolicy == cpus.PolicyStatic || s.MemoryManagerPolicy == memory.PolicyStatic || s.TopologyManagerPolicy != topology.PolicyNone {
		var err error
		if layout, err = machine.Read(k.MachineRoot); err != nil {
			return nil, err
		}
	}
	observed := newPlaceMetrics(k.metrics.Add, p)
	var err error
	p.topology, err = topology.New(topology.Config{
		Policy: s.TopologyManagerPolicy, Scope: s.TopologyManagerScope, Options: s.TopologyManagerPolicyOptions, Distances: layout.Distances(),
		Log: k.log, Observe: observed.admission, Now: k.Now,
		Aligned: func(scope string, is bool) { observed.aligned(scope, "numa_node", is) },
	})
	if err != nil {
		return nil, err
	}
	if err := p.newCPUs(layout, observed); err != nil {
		return nil, err
	}
	reserved, err := k.reservedMemory()
	if err != nil {
		return nil, err
	}
	p.memory, err = memory.New(memory.Config{
		Policy: s.MemoryManagerPolicy, Layout: layout, Reserved: s.ReservedMemory, NodeReserved: reserved,
		StateFile: filepath.Join(k.RootDir, "memory_manager_state"), Observe: observed.memory,
	})
	if err != nil {
		return nil, err
	}
	if p.memory.Static() {
		p.topology.Add(p.memory)
	}
	return p, nil
}

func (p *places) newCPUs(layout *machine.Layout, observed *placeMetrics) error {
	s := p.k.Settings
	own, err := machine.ParseCPUs(s.ReservedSystemCPUs)
	if err != nil {
		return fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	reserved, err := s.Reserved()
	if err != nil {
		return err
	}
	p.cpus, err = cpus.New(cpus.Config{
		Policy: s.CPUManagerPolicy, Options: s.CPUManagerPolicyOptions, AlphaOptions: s.FeatureGates["CPUManagerPolicyAlphaOptions"],
		TopologyPolicy: s.TopologyManagerPolicy, Layout: layout, Reserved: own, ReservedMilliCPU: reserved.Cpu().MilliValue(),
		StateFile: filepath.Join(p.k.RootDir, "cpu_manager_state"), Changed: p.move, Observe: observed.cpus,
		Aligned: func(boundary string, is bool) { observed.aligned(topology.ScopeContainer, boundary, is) },
	})
	if err != nil {
		return err
	}
	if p.cpus.Static() {
		p.topology.Add(p.cpus)
		if p.k.groups != nil {
			p.k.groups.NoQuota = p.cpus.Exclusive
		}
	}
	return nil
}

// reservedMemory is the memory and the huge pages that allocatable leaves out: those of
// kubeReserved and systemReserved, and the hard eviction threshold.
func (k *Kubelet) reservedMemory() (corev1.ResourceList, error) {
	reserved, err := k.Settings.Reserved()
	if err != nil {
		return nil, err
	}
	out := corev1.ResourceList{}
	for name, q := range reserved {
		if name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			out[name] = q
		}
	}
	sum := out[corev1.ResourceMemory]
	threshold := k.Settings.EvictionHard["memory.available"]
	if percent, ok := strings.CutSuffix(threshold, "%"); ok {
		part, err := strconv.ParseFloat(percent, 64)
		if err != nil {
			return nil, fmt.Errorf("evictionHard[memory.available]: %q is not a percentage", threshold)
		}
		sum.Add(*resource.NewQuantity(int64(part/100*float64(k.machine.Memory)), resource.BinarySI))
	} else if threshold != "" {
		q, err := resource.ParseQuantity(threshold)
		if err != nil {
			return nil, fmt.Errorf("evictionHard[memory.available]: %q is not a quantity", threshold)
		}
		sum.Add(q)
	}
	out[corev1.ResourceMemory] = sum
	return out, nil
}

// admit gives the pod its exclusive resources. It first takes back those of ended pods.
func (p *places) admit(pod *corev1.Pod) *topology.Refusal {
	p.sweep()
	return p.topology.Admit(pod)
}

// sweep takes back the exclusive resources of ended pods. It waits until all sources have delivered
// their pods, since until then a running pod can be unknown.
func (p *places) sweep() {
	p.k.mu.Lock()
	ready := p.k.ready
	p.k.mu.Unlock()
	if ready {
		p.topology.Sweep(p.k.holdsPlace)
	}
}

// holdsPlace reports whether a pod's containers run or may still run.
func (k *Kubelet) holdsPlace(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.workers[uid]; w != nil {
		return w.View().Stage < worker.Terminated
	}
	return k.admitted[uid] != nil // its worker is about to start
}

// Pin adds a container's CPUs and NUMA nodes to its settings. A limit on the use of exclusive CPUs
// would only throttle the container, so there is none.
func (p *places) Pin(pod *corev1.Pod, container string, r *runtimeapi.LinuxContainerResources) {
	set, exclusive := p.cpus.Set(pod.UID, container)
	r.CpusetCpus = set.String()
	if exclusive && !p.k.noQuota() {
		r.CpuPeriod, r.CpuQuota = spec.QuotaPeriod, -1
	}
	r.CpusetMems = p.memory.Nodes(pod.UID, container).String()
}

func (k *Kubelet) noQuota() bool { return !*k.Settings.CPUCFSQuota }

// refusesResize returns the reason why a pod keeps its exclusive resources; "" if it has none.
func (p *places) refusesResize(pod *corev1.Pod) string {
	if spec.QOS(pod) != corev1.PodQOSGuaranteed {
		return ""
	}
	switch {
	case p.cpus.Static() && p.cpus.Exclusive(pod.UID):
		return "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"
	case p.memory.Static():
		return "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy"
	}
	return ""
}

// move asks for an update of the shared pool's containers.
func (p *places) move() {
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// run keeps running containers on their CPUs: at once after the pool has changed, and periodically
// in case that an update failed.
func (p *places) run(ctx context.Context) {
	if !p.cpus.Static() {
		return
	}
	tick := time.NewTicker(max(p.k.Settings.CPUManagerReconcilePeriod.Duration, time.Second))
	defer tick.Stop()
	applied := map[string]string{} // container id → CPUs
	for {
		p.update(ctx, applied)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.moved:
		}
	}
}

// update moves running containers whose CPUs have changed. applied remembers the CPUs by container
// id.
func (p *places) update(ctx context.Context, applied map[string]string) {
	running := map[string]bool{}
	for _, w := range p.k.Workers() {
		v := w.View()
		for _, c := range v.Containers {
			if !c.Running() {
				continue
			}
			running[c.Id] = true
			set, _ := p.cpus.Set(v.Pod.UID, c.Name())
			want := set.String()
			if want == "" || applied[c.Id] == want {
				continue
			}
			err := p.k.Runtime.UpdateContainerResources(ctx, c.Id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: want}})
			if err != nil {
				p.k.log.Warn("cannot move a container to its CPUs; trying again", "pod", v.Pod.Namespace+"/"+v.Pod.Name, "container", c.Name(), "cpus", want, "error", err)
				continue
			}
			applied[c.Id] = want
		}
	}
	for id := range applied {
		if !running[id] {
			delete(applied, id)
		}
	}
}
