package kubelet

import (
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
	"github.com/knarr-project/knarr/internal/kubelet/memory"
)

// The pod-resources API shows only exclusive CPUs and bound memory, so without a static policy it
// shows none.

func (p *places) exclusiveCPUs(pod types.UID, container string) []int64 {
	if set, exclusive := p.cpus.Set(pod, container); exclusive {
		return ids(set)
	}
	return nil
}

func (p *places) allCPUs() []int64 {
	if !p.cpus.Static() {
		return nil
	}
	return ids(p.cpus.Allocatable())
}

func (p *places) boundMemory(pod types.UID, container string) []*api.ContainerMemory {
	return containerMemory(p.memory.Blocks(pod, container))
}

func (p *places) allMemory() []*api.ContainerMemory { return containerMemory(p.memory.Allocatable()) }

func ids(set machine.CPUSet) (out []int64) {
	for _, id := range set.List() {
		out = append(out, int64(id))
	}
	return out
}

func containerMemory(blocks []memory.Block) (out []*api.ContainerMemory) {
	for _, b := range blocks {
		one := &api.ContainerMemory{MemoryType: string(b.Type), Size: b.Size, Topology: &api.TopologyInfo{}}
		for _, n := range b.Nodes {
			one.Topology.Nodes = append(one.Topology.Nodes, &api.NUMANode{ID: int64(n)})
		}
		out = append(out, one)
	}
	return out
}
