package scheduler

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reports keeps the order in which the status of a pod is written. A pod may be refused again while
// its last refusal is being written: the newer one must win. Safe for concurrent use.
type reports struct {
	mu sync.Mutex
	// next has the pods whose status is being written, with the fields to write after that.
	next map[types.UID]map[string]any
}

// writing reports whether the pod's status is being written: the pod does not show the newest one.
func (r *reports) writing(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.next[uid]
	return ok
}

// begin reports whether the caller has to write the status. If not, a write of the pod is running,
// and takes over.
func (r *reports) begin(uid types.UID, status map[string]any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	later, running := r.next[uid]
	switch {
	case !running:
		if r.next == nil {
			r.next = map[types.UID]map[string]any{}
		}
		r.next[uid] = nil
	case later == nil:
		r.next[uid] = status
	default:
		maps.Copy(later, status)
	}
	return !running
}

// after returns the status to write after one was written; nil ends the pod's writes.
func (r *reports) after(uid types.UID) map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.next[uid]
	if status == nil {
		delete(r.next, uid)
	} else {
		r.next[uid] = nil
	}
	return status
}

// writeStatus writes fields of a pod's status in another goroutine, after those of earlier calls.
func (s *Scheduler) writeStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) {
	if !s.reports.begin(pod.UID, status) {
		return
	}
	ran := s.write(ctx, func() {
		for status := status; status != nil; status = s.reports.after(pod.UID) {
			if err := s.patchStatus(ctx, pod, status); err != nil {
				s.log.Warn("cannot write the condition of an unschedulable pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
			}
		}
	})
	if !ran { // the scheduler ends
		for s.reports.after(pod.UID) != nil {
		}
	}
}
