package worker

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
)

// collect removes dead containers. It keeps the newest dead one of each name for its log and its
// last state.
func (w *Worker) collect(ctx context.Context) {
	if w.tasks["collect"] != nil {
		return
	}
	var remove []*pleg.Container
	each(w.pod, func(c *corev1.Container, _ containerKind) {
		kept := 0
		for i, a := range w.observed.Attempts(c.Name) {
			dead := a.Exited()
			if i > 0 && dead && kept > 0 {
				remove = append(remove, a)
			}
			if dead {
				kept++
			}
		}
	})
	var oldSandboxes []string
	newest := w.observed.Sandbox()
	for id, s := range w.observed.Sandboxes {
		if s == newest || s.Ready() || !newest.Ready() {
			continue
		}
		used := false
		for _, c := range w.observed.Containers {
			used = used || c.SandboxID == id
		}
		if !used {
			oldSandboxes = append(oldSandboxes, id)
		}
	}
	if len(remove)+len(oldSandboxes) == 0 || w.podProblem["collect"].retryAt.After(w.Now()) {
		return
	}
	pod := w.pod
	w.run(ctx, "collect", func(ctx context.Context) func() {
		var gone []string
		failed := false
		for _, c := range remove {
			if err := w.Runtime.RemoveContainer(ctx, c.Id); err != nil {
				failed = true
				continue
			}
			w.removeLogs(pod, c)
			gone = append(gone, c.Id)
		}
		for _, id := range oldSandboxes {
			if err := w.Runtime.RemovePodSandbox(ctx, id); err != nil {
				failed = true
				continue
			}
			gone = append(gone, id)
		}
		return func() {
			for _, id := range gone {
				w.observed.Remove(id, w.Now())
				delete(w.messages, id)
			}
			if failed {
				w.retry("collect")
			}
		}
	})
}
