package worker

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// watchProbes starts the probes of running containers and stops those of ended ones.
func (w *Worker) watchProbes(ctx context.Context) {
	ips := w.observed.Sandbox().IPs()
	if w.pod.Spec.HostNetwork {
		ips = w.Host.IPs()
	}
	ip := ""
	if len(ips) > 0 {
		ip = ips[0]
	}
	for id, c := range w.observed.Containers {
		if !c.Running() {
			w.probes.Stop(id)
			continue
		}
		if w.hidden[id] || w.probes.Known(id) {
			continue
		}
		container := w.container(c.Name())
		if container == nil {
			continue
		}
		probed := *container
		if w.isInit(c.Name()) && !spec.IsSidecar(container) {
			probed.StartupProbe, probed.LivenessProbe, probed.ReadinessProbe = nil, nil, nil
		}
		w.probes.Ensure(ctx, probe.Target{Pod: w.pod, Container: &probed, ID: id, IP: ip}, time.Unix(0, c.StartedAt), w.seed(id))
	}
}

func (w *Worker) isInit(name string) bool {
	for i := range w.pod.Spec.InitContainers {
		if w.pod.Spec.InitContainers[i].Name == name {
			return true
		}
	}
	return false
}

// seed returns the probe results in the API's status, for a container that an earlier run of the
// node agent started.
func (w *Worker) seed(id string) probe.Seed {
	for _, list := range [][]corev1.ContainerStatus{w.old.InitContainerStatuses, w.old.ContainerStatuses} {
		for i := range list {
			if list[i].ContainerID == w.RuntimeName+"://"+id {
				return probe.Seed{Started: list[i].Started != nil && *list[i].Started, Ready: list[i].Ready}
			}
		}
	}
	return probe.Seed{}
}
