package status

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// writers is the number of concurrent status writes.
const writers = 4

// Manager writes pods' statuses. Set never blocks. If several statuses of a pod are waiting, only
// the newest is written.
type Manager struct {
	client client.Interface
	log    *slog.Logger
	// current returns the newest known API version of a pod; for a static pod, of its mirror.
	current func(pod *corev1.Pod) (*corev1.Pod, bool)
	// Synced is told how long a change of a status took to be written; may be nil.
	Synced func(took time.Duration)

	mu      sync.Mutex
	wanted  map[types.UID]*wanted
	queue   []types.UID
	writing map[types.UID]bool
	wake    *sync.Cond
	closed  bool
}

type wanted struct {
	pod    *corev1.Pod
	status corev1.PodStatus
	since  time.Time // of the first change that is not written yet
}

// NewManager makes a Manager. current returns the API's version of a pod.
func NewManager(c client.Interface, log *slog.Logger, current func(*corev1.Pod) (*corev1.Pod, bool)) *Manager {
	m := &Manager{client: c, log: log, current: current, wanted: map[types.UID]*wanted{}, writing: map[types.UID]bool{}}
	m.wake = sync.NewCond(&m.mu)
	return m
}

// Set queues the status for writing.
func (m *Manager) Set(pod *corev1.Pod, s corev1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since := time.Now()
	if w, queued := m.wanted[pod.UID]; queued {
		since = w.since
	} else {
		m.queue = append(m.queue, pod.UID)
	}
	m.wanted[pod.UID] = &wanted{pod, s, since}
	m.wake.Signal()
}

// Write writes the status and returns when the API has it. It drops a queued status of the pod.
func (m *Manager) Write(ctx context.Context, pod *corev1.Pod, s corev1.PodStatus) error {
	m.mu.Lock()
	delete(m.wanted, pod.UID)
	for m.writing[pod.UID] {
		m.wake.Wait()
	}
	m.writing[pod.UID] = true
	m.mu.Unlock()
	defer m.done(pod.UID)
	return m.write(ctx, pod, s)
}

func (m *Manager) done(uid types.UID) {
	m.mu.Lock()
	delete(m.writing, uid)
	m.wake.Broadcast()
	m.mu.Unlock()
}

// Run writes until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for m.next(ctx) {
			}
		}()
	}
	<-ctx.Done()
	m.mu.Lock()
	m.closed = true
	m.wake.Broadcast()
	m.mu.Unlock()
	wg.Wait()
}

// next writes one status. It returns false when the manager is closed.
func (m *Manager) next(ctx context.Context) bool {
	m.mu.Lock()
	var uid types.UID
	var w *wanted
	for w == nil {
		if m.closed {
			m.mu.Unlock()
			return false
		}
		for i, u := range m.queue {
			if m.writing[u] {
				continue
			}
			uid, w = u, m.wanted[u]
			m.queue = append(m.queue[:i:i], m.queue[i+1:]...)
			break
		}
		if uid == "" {
			m.wake.Wait()
		} else if w == nil {
			uid = "" // Write has written it in the meantime
		}
	}
	delete(m.wanted, uid)
	m.writing[uid] = true
	m.mu.Unlock()
	err := m.write(ctx, w.pod, w.status)
	m.done(uid)
	if err == nil && m.Synced != nil {
		m.Synced(time.Since(w.since))
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("cannot write a pod's status; trying again", "pod", w.pod.Namespace+"/"+w.pod.Name, "error", err)
		go func() {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
				m.again(uid, w)
			}
		}()
	}
	return true
}

// again queues a status whose write failed, unless a newer one is queued.
func (m *Manager) again(uid types.UID, w *wanted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if newer := m.wanted[uid]; newer != nil {
		newer.since = w.since
	} else {
		m.wanted[uid] = w
		m.queue = append(m.queue, uid)
		m.wake.Signal()
	}
}

// write updates the API's status. It starts from the newest known version and reads the API's own
// if that one is stale. If the pod no longer exists, write does nothing.
func (m *Manager) write(ctx context.Context, pod *corev1.Pod, s corev1.PodStatus) error {
	for attempt := 0; attempt < 5; attempt++ {
		now, ok := m.current(pod)
		if attempt > 0 && ok {
			fresh, err := client.Get[*corev1.Pod](ctx, m.client, now.Namespace, now.Name)
			if apierrors.IsNotFound(err) || err == nil && fresh.UID != now.UID {
				return nil
			}
			if err != nil {
				return fmt.Errorf("get pod %s/%s: %w", now.Namespace, now.Name, err)
			}
			now = fresh
		}
		if !ok {
			return nil
		}
		merged := merge(&now.Status, &s)
		if equality.Semantic.DeepEqual(merged, now.Status) {
			return nil
		}
		update := now.DeepCopy()
		update.Status = merged
		_, err := client.UpdateStatus(because.WithObjects(ctx, pod), m.client, update)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case apierrors.IsConflict(err):
			continue
		default:
			return fmt.Errorf("update status of pod %s/%s: %w", now.Namespace, now.Name, err)
		}
	}
	return fmt.Errorf("update status of pod %s/%s: too many conflicting changes", pod.Namespace, pod.Name)
}

// owned are the conditions that the node agent sets.
var owned = map[corev1.PodConditionType]bool{
	corev1.PodReadyToStartContainers: true, corev1.PodInitialized: true, corev1.PodReady: true, corev1.ContainersReady: true,
	corev1.PodScheduled: true, corev1.PodResizePending: true, corev1.PodResizeInProgress: true, corev1.AllContainersRestarting: true,
}

// merge keeps other writers' parts of the API's status.
func merge(api, ours *corev1.PodStatus) corev1.PodStatus {
	out := *ours.DeepCopy()
	out.Conditions = nil
	for _, c := range ours.Conditions {
		if owned[c.Type] || c.Type == corev1.DisruptionTarget {
			out.Conditions = append(out.Conditions, c)
		}
	}
	for _, c := range api.Conditions {
		if !owned[c.Type] && !has(out.Conditions, c.Type) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	out.NominatedNodeName = api.NominatedNodeName
	out.ResourceClaimStatuses, out.ExtendedResourceClaimStatus = api.ResourceClaimStatuses, api.ExtendedResourceClaimStatus
	if api.QOSClass != "" {
		out.QOSClass = api.QOSClass
	}
	if Terminal(api.Phase) && !Terminal(out.Phase) {
		out.Phase = api.Phase
	}
	if api.StartTime != nil {
		out.StartTime = api.StartTime
	}
	return out
}

// Overwritten reports whether the API's status of a pod lacks what our status has.
func Overwritten(api, ours *corev1.PodStatus) bool {
	return !equality.Semantic.DeepEqual(merge(api, ours), *api)
}

// IsStatic reports whether a pod comes from a source other than the API.
func IsStatic(pod *corev1.Pod) bool {
	source, ok := pod.Annotations[spec.AnnotationConfigSource]
	return ok && source != "api"
}
