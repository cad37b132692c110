package worker

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/kubelet/logs"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/status"
)

// Limits of termination messages (API reference, Container.terminationMessagePath).
const (
	maxMessage    = 4096
	maxAllMessage = 12 << 10
	maxLogLines   = 80
	maxLogBytes   = 2048
)

// publishDelay is how long a change may wait if another one will follow at once.
const publishDelay = 150 * time.Millisecond

// replaceDelay is the same for a container that is replaced because its definition changed. Readers
// then see one container after the other, unless the new one takes longer to run.
const replaceDelay = time.Second

// correctPeriod is the minimum time between two corrections of a status that others overwrite.
const correctPeriod = 3 * time.Second

// publish generates the pod's status, and gives a changed one to the status manager. Brief
// intermediate states (the sandbox is up, the container is made) are not worth a write. It returns
// when to publish a delayed change; zero means that there is none.
func (w *Worker) publish() (again time.Time) {
	s := w.generate()
	if equality.Semantic.DeepEqual(&s, &w.old) {
		w.unpublished = time.Time{}
		w.updateView()
		return w.correctStatus()
	}
	if delay := w.publishWait(&s); delay > 0 {
		now := w.Now()
		if w.unpublished.IsZero() {
			w.unpublished = now
		}
		if at := w.unpublished.Add(delay); now.Before(at) {
			w.updateView()
			return at
		}
	}
	if s.Phase == corev1.PodRunning && (w.old.Phase == corev1.PodPending || w.old.Phase == "") {
		now := w.Now()
		w.Metrics.PodRunning(now.Sub(w.seen), max(now.Sub(w.pod.CreationTimestamp.Time), 0))
	}
	w.noteReady(&s)
	w.unpublished, w.overwritten = time.Time{}, false
	w.old = s
	w.updateView()
	if !w.removed && !w.deleted {
		w.Status.Set(w.pod, s)
	}
	return time.Time{}
}

// correctStatus publishes the status again if another writer has overwritten it. It does so at most
// once in correctPeriod, since the other writer may not stop. It returns when to check again.
func (w *Worker) correctStatus() (again time.Time) {
	if !w.overwritten || w.removed || w.deleted {
		return time.Time{}
	}
	now := w.Now()
	if at := w.republished.Add(correctPeriod); now.Before(at) {
		return at
	}
	w.overwritten, w.republished = false, now
	w.Status.Set(w.pod, w.old)
	return time.Time{}
}

// publishWait returns how long the status may wait because the pod is about to leave its state;
// zero means that it must not wait.
func (w *Worker) publishWait(s *corev1.PodStatus) time.Duration {
	if len(w.old.ContainerStatuses) == 0 || s.Phase != w.old.Phase {
		return 0
	}
	starting := w.anyTask("container:") || w.tasks["sandbox"] != nil || w.anyTask("image:")
	switch {
	case starting && s.Phase == corev1.PodPending:
		if reasons(s) == reasons(&w.old) {
			return publishDelay
		}
	case w.stage == Syncing && w.replacing():
		return replaceDelay
	case w.stage == Terminating && !w.observed.AnyRunning():
		return publishDelay
	}
	return 0
}

// replacing reports whether a container that was stopped because of its changed definition has
// ended, while its successor does not run yet.
func (w *Worker) replacing() bool {
	found := false
	for name, id := range w.replaced {
		latest := w.observed.Latest(name)
		_, troubled := w.problems[name]
		switch {
		case latest == nil || troubled || latest.Id != id && (latest.Running() || latest.Exited()):
			delete(w.replaced, name)
		case !latest.Running():
			found = true
		}
	}
	return found
}

// reasons lists the reasons for which containers wait.
func reasons(s *corev1.PodStatus) string {
	var b strings.Builder
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			if wait := list[i].State.Waiting; wait != nil {
				b.WriteString(list[i].Name + wait.Reason + ",")
			}
		}
	}
	return b.String()
}

// updateView updates the copy that View returns.
func (w *Worker) updateView() {
	v := View{Pod: w.pod, Status: w.old, Stage: w.stage}
	for _, sb := range w.observed.Sandboxes {
		v.Sandboxes = append(v.Sandboxes, sb)
	}
	for _, c := range w.observed.Containers {
		v.Containers = append(v.Containers, c)
	}
	w.viewMu.Lock()
	w.view = v
	w.viewMu.Unlock()
}

func (w *Worker) generate() corev1.PodStatus {
	// Other writers own some conditions, such as readiness gates: take them from the newest version
	// of the pod.
	old := w.old
	old.Conditions = mergeConditions(w.old.Conditions, w.pod.Status.Conditions)
	in := status.Input{
		Pod: w.pod, Old: &old, Observed: w.observed, Waiting: w.waiting(), Hidden: w.hidden,
		Ready:     func(c *corev1.Container, id string) bool { return w.probes.Ready(id) },
		Started:   func(c *corev1.Container, id string) bool { return w.probes.Started(id) && !w.hidden[id] },
		LastWords: w.terminationMessage, Resources: w.resources, HostIPs: w.Host.IPs(), Ended: w.stage >= Terminated && w.endRequested(),
		SandboxReady: w.stage < Terminated && w.observed.Sandbox().Ready(), StartTime: w.startTime, RuntimeName: w.RuntimeName,
		Resize: w.resizeConditions(), PodResources: w.resize.podResources(), RestartingAll: w.restartAll.message, Now: w.Now(),
		Devices: func(c *corev1.Container) []corev1.ResourceStatus { return w.Devices.Health(w.pod, c) },
	}
	if w.failure != nil {
		in.Failed, in.FailedReason, in.FailedMessage = w.failure.Cause, w.failure.Reason, w.failure.Message
	}
	return status.Generate(in)
}

// endRequested reports whether the pod was told to end.
func (w *Worker) endRequested() bool { return w.pod.DeletionTimestamp != nil || w.removed }

func (w *Worker) waiting() map[string]corev1.ContainerStateWaiting {
	if w.stage > Syncing || w.plan == nil {
		return nil
	}
	return w.plan.waiting
}

// mergeConditions takes the node agent's conditions from ours and all others from the API's.
func mergeConditions(ours, api []corev1.PodCondition) []corev1.PodCondition {
	own := map[corev1.PodConditionType]bool{
		corev1.PodReadyToStartContainers: true, corev1.PodInitialized: true, corev1.PodReady: true, corev1.ContainersReady: true, corev1.PodScheduled: true,
		corev1.PodResizePending: true, corev1.PodResizeInProgress: true,
		corev1.AllContainersRestarting: true,
	}
	var out []corev1.PodCondition
	for _, c := range ours {
		if own[c.Type] {
			out = append(out, c)
		}
	}
	for _, c := range api {
		if !own[c.Type] {
			out = append(out, c)
		}
	}
	return out
}

// terminationMessage returns an ended container's termination message.
func (w *Worker) terminationMessage(c *corev1.Container, r *pleg.Container) string {
	if m, ok := w.messages[r.Id]; ok {
		return m
	}
	limit := maxMessage
	if n := len(w.pod.Spec.Containers) + len(w.pod.Spec.InitContainers); n > 0 {
		limit = min(limit, maxAllMessage/n)
	}
	m := r.Message
	if path := terminationPath(w.dir(), r); path != "" {
		if said := readTail(path, limit, false); said != "" {
			if m != "" {
				m += ": "
			}
			m += said
		}
	}
	if m == "" && r.ExitCode != 0 && c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError && r.LogPath != "" {
		logs.Complete(context.Background(), r.LogPath) // at most two seconds
		m = lastLogLines(r.LogPath)
	}
	if len(m) > limit {
		m = m[:limit]
	}
	w.messages[r.Id] = m
	return m
}

// terminationPath returns the container's termination message file on the host, or "". It is the
// node agent's own file, which no container can replace. A volume mounted at the same path does not
// count: its files can be links.
func terminationPath(podDir string, r *pleg.Container) string {
	path := r.Annotations[spec.AnnotationTerminationPath]
	own := spec.TerminationFile(podDir, r.Name(), r.Attempt())
	for _, m := range r.Mounts {
		if path != "" && filepath.Clean(m.ContainerPath) == filepath.Clean(path) && filepath.Clean(m.HostPath) == own {
			return own
		}
	}
	return ""
}

// readTail reads the first or the last bytes of a regular file, at most limit. It does not follow
// links or wait for pipes.
func readTail(path string, limit int, tail bool) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return ""
	}
	if tail && st.Size() > int64(limit) {
		_, _ = f.Seek(-int64(limit), io.SeekEnd)
	}
	raw, _ := io.ReadAll(io.LimitReader(f, int64(limit)))
	return string(raw)
}

// lastLogLines returns the end of a log in CRI's format, without times and tags.
func lastLogLines(path string) string {
	lines := strings.SplitAfter(readTail(path, 16*maxLogBytes, true), "\n")
	var b strings.Builder
	for _, l := range lines[max(0, len(lines)-maxLogLines-1):] {
		parts := strings.SplitN(l, " ", 4)
		if len(parts) == 4 {
			if strings.HasPrefix(parts[2], "P") {
				parts[3] = strings.TrimSuffix(parts[3], "\n")
			}
			b.WriteString(parts[3])
		}
	}
	out := b.String()
	return out[max(0, len(out)-maxLogBytes):]
}
