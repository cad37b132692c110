package kubelet

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/topology"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// newTopology makes the manager that places pods on NUMA nodes, with its providers.
func (k *Kubelet) newTopology() (*topology.Manager, error) {
	return topology.New(topology.Config{Log: k.log})
}

// place gives the pod its exclusive resources. It first takes back those of ended pods.
func (k *Kubelet) place(pod *corev1.Pod) *topology.Refusal {
	k.sweepPlaces()
	return k.topology.Admit(pod)
}

// sweepPlaces takes back the exclusive resources of ended pods. It waits until all sources have
// delivered their pods, since until then a running pod can be unknown.
func (k *Kubelet) sweepPlaces() {
	k.mu.Lock()
	ready := k.ready
	k.mu.Unlock()
	if ready {
		k.topology.Sweep(k.holdsPlace)
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
