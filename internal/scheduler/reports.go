package scheduler

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// reportDelay is the longest time for which bindings delay a report.
	reportDelay = 250 * time.Millisecond
	// mostReports is the maximum number of reports that are written at once.
	mostReports = 8
)

// reports keeps what the scheduler has to write to the status of pods and their groups. Bindings
// come first: reports wait while pods are being bound. A waiting report takes in newer ones of its
// object, and a binding makes it obsolete (KEP-5229). No object has two writes at once. Safe for
// concurrent use.
type reports struct {
	mu      sync.Mutex
	waiting map[types.UID]*report
	order   []*report                   // of waiting, oldest first; includes obsolete ones
	running map[types.UID]chan struct{} // closed when the write has ended
	writers int                         // goroutines that write
}

// report is a status to be merged into that of an object.
type report struct {
	ctx      context.Context
	of       types.UID
	status   map[string]any
	write    func(ctx context.Context, status map[string]any)
	since    time.Time
	obsolete bool
}

// pending reports whether the object does not yet show all that was reported.
func (r *reports) pending(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[uid] != nil || r.running[uid] != nil
}

// put adds a report.
func (r *reports) put(new *report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if earlier := r.waiting[new.of]; earlier != nil {
		earlier.ctx, earlier.write = new.ctx, new.write
		maps.Copy(earlier.status, new.status)
		return
	}
	if r.waiting == nil {
		r.waiting, r.running = map[types.UID]*report{}, map[types.UID]chan struct{}{}
	}
	r.waiting[new.of] = new
	r.order = append(r.order, new)
}

// settle drops the object's waiting report, and waits until its running write has ended.
func (r *reports) settle(ctx context.Context, uid types.UID) {
	r.mu.Lock()
	if w := r.waiting[uid]; w != nil {
		w.obsolete = true
		delete(r.waiting, uid)
	}
	running := r.running[uid]
	r.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-running:
	case <-ctx.Done():
	}
}

// hire reports whether the caller has to start another goroutine that writes.
func (r *reports) hire(busy bool, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writers >= mostReports || !r.due(busy, now) {
		return false
	}
	r.writers++
	return true
}

// due reports whether a report has to be written now. The caller holds mu.
func (r *reports) due(busy bool, now time.Time) bool {
	for len(r.order) > 0 && r.order[0].obsolete {
		r.order = r.order[1:]
	}
	return len(r.order) > 0 && (!busy || now.Sub(r.order[0].since) >= reportDelay)
}

// take returns the next report to write; wrote must follow. After nil, the goroutine has to end.
func (r *reports) take(busy bool, now time.Time) *report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due(busy, now) {
		for i, next := range r.order {
			if next.obsolete || r.running[next.of] != nil {
				continue // a running write's goroutine comes back for the object's next one
			}
			r.order = append(r.order[:i:i], r.order[i+1:]...)
			delete(r.waiting, next.of)
			r.running[next.of] = make(chan struct{})
			return next
		}
	}
	r.writers--
	return nil
}

// wrote ends the write of a report.
func (r *reports) wrote(done *report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.running[done.of])
	delete(r.running, done.of)
}

// writeStatus merges fields into a pod's status, soon and in another goroutine.
func (s *Scheduler) writeStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) {
	s.put(ctx, pod.UID, status, func(ctx context.Context, status map[string]any) {
		if err := s.patchStatus(ctx, pod, status); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot write the condition of an unschedulable pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		}
	})
}

// put lets another goroutine write a status soon.
func (s *Scheduler) put(ctx context.Context, of types.UID, status map[string]any, write func(ctx context.Context, status map[string]any)) {
	s.reports.put(&report{ctx: ctx, of: of, status: status, write: write, since: time.Now()})
	s.writeReports()
}

// writeReports starts a goroutine that writes reports, if some are due.
func (s *Scheduler) writeReports() {
	if !s.reports.hire(len(s.binders) > 0, time.Now()) {
		return
	}
	s.writing.Add(1)
	go func() {
		defer s.writing.Done()
		for {
			next := s.reports.take(len(s.binders) > 0, time.Now())
			if next == nil {
				return
			}
			next.write(next.ctx, next.status)
			s.reports.wrote(next)
		}
	}()
}
