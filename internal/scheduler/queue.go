package scheduler

import (
	"container/heap"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Upstream's default times.
const (
	initialBackoff     = 1 * time.Second
	maxBackoff         = 10 * time.Second
	maxInUnschedulable = 5 * time.Minute
)

// queued is a pod in the queue. While it waits it is in one of three places:
//
//	active         ready; the highest priority first, then the oldest
//	backoff        becomes active at a certain time
//	unschedulable  waits for an event that one of the refusing plugins asked for, or five minutes
type queued struct {
	info     *framework.PodInfo
	since    time.Time // when the pod was first queued; breaks ties of priority
	attempts int
	tried    time.Time        // last attempt
	until    time.Time        // end of the backoff, or of the wait for an event
	wants    framework.Events // events that end the wait
	refused  []string         // plugins that refused it in the last attempt
	place    place
	index    int // in its heap
}

type place uint8

const (
	nowhere place = iota
	active
	backoff
	unschedulable
	inFlight
)

// String returns the place's name in metrics.
func (p place) String() string {
	return [...]string{"nowhere", "active", "backoff", "unschedulable", "inFlight"}[p]
}

// attemptFailed is the usual reason for which a pod waits.
const attemptFailed = "ScheduleAttemptFailure"

// queue holds the pods to schedule. The scheduler's goroutine owns it. Time is an input.
type queue struct {
	pods    map[types.UID]*queued
	active  podHeap
	backoff podHeap
	// missed has the events that arrived while a pod was being tried, so that none is lost between
	// the decision and the return to the queue.
	missed framework.Events

	metrics *Metrics
}

func newQueue(metrics *Metrics) *queue {
	return &queue{
		metrics: metrics,
		pods:    map[types.UID]*queued{},
		active:  podHeap{less: byPriority},
		backoff: podHeap{less: func(a, b *queued) bool { return a.until.Before(b.until) }},
	}
}

func byPriority(a, b *queued) bool {
	if pa, pb := priority(a.info.Pod), priority(b.info.Pod); pa != pb {
		return pa > pb
	}
	return a.since.Before(b.since)
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority != nil {
		return *pod.Spec.Priority
	}
	return 0
}

// put adds a pod or updates it. A changed pod that waits for an event is tried again.
func (q *queue) put(info *framework.PodInfo, changed bool, now time.Time) {
	p, ok := q.pods[info.Pod.UID]
	if !ok {
		p = &queued{info: info, since: now}
		q.pods[info.Pod.UID] = p
		q.activate(p, "UnschedulablePodAdd")
		return
	}
	p.info = info
	switch {
	case p.place == active:
		heap.Fix(&q.active, p.index)
	case p.place == unschedulable && changed:
		q.retry(p, "UnschedulablePodUpdate", now)
	case p.place == inFlight && changed:
		q.missed |= framework.SelfChanged
	}
}

// remove removes a bound or deleted pod.
func (q *queue) remove(uid types.UID) {
	if p, ok := q.pods[uid]; ok {
		q.leave(p)
		delete(q.pods, uid)
	}
}

func (q *queue) leave(p *queued) {
	switch p.place {
	case active:
		heap.Remove(&q.active, p.index)
	case backoff:
		heap.Remove(&q.backoff, p.index)
	}
	p.place = nowhere
}

// activate, retry and refused count the reason in the metrics, in upstream's words.
func (q *queue) activate(p *queued, why string) {
	q.leave(p)
	p.place = active
	q.metrics.queuedTo(active, why)
	heap.Push(&q.active, p)
}

// retry makes a pod active after the rest of its backoff.
func (q *queue) retry(p *queued, why string, now time.Time) {
	q.leave(p)
	p.until = p.tried.Add(backoffOf(p.attempts))
	if !p.until.After(now) {
		q.activate(p, why)
		return
	}
	p.place = backoff
	q.metrics.queuedTo(backoff, why)
	heap.Push(&q.backoff, p)
}

// backoffOf is 1 s after the first attempt, and doubles up to 10 s.
func backoffOf(attempts int) time.Duration {
	if attempts == 0 {
		return 0
	}
	d := initialBackoff
	for range attempts - 1 {
		if d *= 2; d >= maxBackoff {
			return maxBackoff
		}
	}
	return d
}

// pop takes the next pod to try; ok is false if none is active.
func (q *queue) pop(now time.Time) (p *queued, ok bool) {
	for len(q.backoff.items) > 0 && !q.backoff.items[0].until.After(now) {
		q.activate(q.backoff.items[0], "BackoffComplete")
	}
	if len(q.active.items) == 0 {
		return nil, false
	}
	p = heap.Pop(&q.active).(*queued)
	p.place, p.tried, p.refused = inFlight, now, nil
	p.attempts++
	q.missed = 0
	return p, true
}

// refused returns a pod that found no node to the queue. It waits for one of the events, unless one
// came during the attempt.
func (q *queue) refused(p *queued, wants framework.Events, now time.Time) {
	if q.pods[p.info.Pod.UID] != p {
		return // deleted during the attempt
	}
	if q.missed&wants != 0 || wants == 0 {
		q.retry(p, attemptFailed, now)
		return
	}
	p.place, p.wants, p.until = unschedulable, wants, now.Add(maxInUnschedulable)
	q.metrics.queuedTo(unschedulable, attemptFailed)
}

// failed returns a pod to the queue whose attempt ended in an error. It is retried after its
// backoff.
func (q *queue) failed(p *queued, now time.Time) {
	if q.pods[p.info.Pod.UID] == p {
		q.retry(p, attemptFailed, now)
	}
}

// wake wakes the pods that wait for the event.
func (q *queue) wake(e framework.Events, now time.Time) { q.wakeMatching(e, nil, now) }

// wakeMatching wakes those of the waiting pods that the event concerns; nil means all of them.
func (q *queue) wakeMatching(e framework.Events, concerns func(*framework.PodInfo) bool, now time.Time) {
	q.missed |= e
	for _, p := range q.pods {
		if p.place != unschedulable {
			continue
		}
		switch {
		case p.wants&e != 0 && (concerns == nil || concerns(p.info)):
			q.retry(p, (p.wants & e).Name(), now)
		case !p.until.After(now):
			q.retry(p, "UnschedulableTimeout", now)
		}
	}
}

// next is the earliest time at which a pod becomes active by itself; ok is false if there is none.
func (q *queue) next() (at time.Time, ok bool) {
	if len(q.backoff.items) > 0 {
		at, ok = q.backoff.items[0].until, true
	}
	for _, p := range q.pods {
		if p.place == unschedulable && (!ok || p.until.Before(at)) {
			at, ok = p.until, true
		}
	}
	return at, ok
}

// podHeap is a heap whose pods know their index.
type podHeap struct {
	items []*queued
	less  func(a, b *queued) bool
}

func (h *podHeap) Len() int           { return len(h.items) }
func (h *podHeap) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }
func (h *podHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}

func (h *podHeap) Push(x any) {
	p := x.(*queued)
	p.index = len(h.items)
	h.items = append(h.items, p)
}

func (h *podHeap) Pop() any {
	last := h.items[len(h.items)-1]
	h.items[len(h.items)-1] = nil
	h.items = h.items[:len(h.items)-1]
	return last
}
