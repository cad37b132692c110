package kubelet

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/shutdown"
	"github.com/knarr-project/knarr/internal/kubelet/status"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// newShutdown makes the manager that ends pods before the machine goes down.
func newShutdown(k *Kubelet) *shutdown.Manager {
	return shutdown.New(shutdown.Config{
		Groups: shutdown.Groups(&k.Settings.KubeletConfiguration), Pods: k.activePods, End: k.endForShutdown,
		Ended: k.endedForShutdown, Settled: k.settled, Logind: k.Logind, Halting: k.Halting,
		Changed: func(begins bool) {
			note := "Shutdown manager detected shutdown event"
			if !begins {
				note = "Shutdown manager detected shutdown cancellation"
			}
			k.Events.Eventf(k.node.Reference(), nil, corev1.EventTypeNormal, "NodeShutdown", "ShuttingDown", "%s", note)
			k.node.Kick()
		},
		StateFile: filepath.Join(k.RootDir, "graceful_node_shutdown_state"), Now: k.Now, Log: k.log,
	})
}

// Outlast returns a context that ends after ctx: if the machine goes down, when the pods have
// ended.
func (k *Kubelet) Outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	return k.shutdown.Outlast(ctx)
}

func (k *Kubelet) endForShutdown(pod *corev1.Pod, grace int64) {
	if w := k.worker(pod.UID); w != nil {
		w.Fail(worker.Failure{Cause: "Shutdown", Reason: shutdown.Reason, Message: shutdown.Message, Grace: &grace})
	}
}

func (k *Kubelet) endedForShutdown(uid types.UID) bool {
	w := k.worker(uid)
	return w == nil || w.View().Stage >= worker.Terminated
}

// settled reports whether the API knows the end of each ended pod, and nothing of it is mounted.
func (k *Kubelet) settled() bool {
	for _, w := range k.Workers() {
		v := w.View()
		if v.Stage < worker.Terminated {
			continue
		}
		if have, ok := k.apiPod(v.Pod); v.Stage < worker.Released || ok && !status.Terminal(have.Status.Phase) {
			return false
		}
	}
	return true
}
