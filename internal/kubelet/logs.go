package kubelet

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/logs"
)

// rotateLogs rotates the logs of running containers until ctx ends.
func (k *Kubelet) rotateLogs(ctx context.Context) {
	r := &logs.Rotator{Runtime: k.Runtime, MaxSize: k.Settings.LogMaxSize(), MaxFiles: int(*k.Settings.ContainerLogMaxFiles), Now: k.Now}
	r.Watch(ctx, k.Settings.ContainerLogMonitorInterval.Duration, int(*k.Settings.ContainerLogMaxWorkers), k.runningLogs, func(l logs.Log, err error) {
		k.log.Warn("cannot rotate a container's log", "path", l.Path, "error", err)
	})
}

func (k *Kubelet) runningLogs() []logs.Log {
	var out []logs.Log
	for _, w := range k.Workers() {
		for _, c := range w.View().Containers {
			if c.Running() && c.LogPath != "" {
				out = append(out, logs.Log{ContainerID: c.Id, Path: c.LogPath})
			}
		}
	}
	return out
}

// linkLogs makes missing links to containers' logs and removes dead ones. The worker makes a
// container's link when it starts; this repairs what an interruption left.
func (k *Kubelet) linkLogs() {
	live := map[string]bool{}
	for _, w := range k.Workers() {
		v := w.View()
		pod := types.NamespacedName{Namespace: v.Pod.Namespace, Name: v.Pod.Name}
		for _, c := range v.Containers {
			if !c.Running() || c.LogPath == "" {
				continue
			}
			live[logs.LinkName(pod, c.Name(), c.Id)] = true
			if err := k.logs.Link(pod, c.Name(), c.Id, c.LogPath); err != nil {
				k.log.Warn("cannot link a container's log for collectors", "path", c.LogPath, "error", err)
			}
		}
	}
	if err := k.logs.Sweep(live); err != nil {
		k.log.Warn("cannot remove links to logs that are gone", "error", err)
	}
}
