package scheduler

import (
	"container/heap"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Upstream's default times.
const (
	initialBackoff     = 1 * time.Second
	maxBackoff         = 10 * time.Second
	maxInUnschedulable = 5 * time.Minute
)

// queued is a pod in the queue. While it waits it is in one of four places:
//
//	active         ready; QueueSort orders it, by default by priority and age
//	backoff        becomes active at a certain time, or as soon as no other pod is active
//	unschedulable  waits for an event that one of the refusing plugins asked for, or five minutes
//	gated          waits for the consent of a PreEnqueue plugin
type queued struct {
	info     *framework.PodInfo
	since    time.Time // when the pod could first be tried
	attempts int
	sorted   framework.QueuedPod // what QueueSort sees of the pod
	tried    time.Time           // last attempt
	until    time.Time           // end of the backoff, or of the wait for an event
	wants    framework.Events    // events that end the wait
	refused  []string            // plugins that refused it in the last attempt, or gate it
	flushed  bool                // no event ended its last wait, but the time
	erred    bool                // the last attempt failed: its backoff does not end early
	place    place
	index    int                    // in its heap
	claims   []types.NamespacedName // under which byClaim has it
	// missed has the events that arrived while the pod was being tried or bound, so that none is
	// lost before the pod returns to the queue. missedCauses are their revisions.
	missed       framework.Events
	missedCauses because.Revisions
	// woken are the changes of other objects that ended its wait since the last attempt.
	woken because.Revisions
}

type place uint8

const (
	nowhere place = iota
	active
	backoff
	unschedulable
	gated
	inFlight
)

// String returns the place's name in metrics.
func (p place) String() string {
	return [...]string{"nowhere", "active", "backoff", "unschedulable", "gated", "inFlight"}[p]
}

// attemptFailed is the usual reason for which a pod waits.
const attemptFailed = "ScheduleAttemptFailure"

// queue holds the pods to schedule. The scheduler's goroutine owns it. Time is an input.
type queue struct {
	pods   map[types.UID]*queued
	active podHeap
	// Refused pods are in backoff, and pods whose attempt failed in erred.
	backoff, erred podHeap
	// waiting are the unschedulable and the gated pods; flying are those that are tried or bound.
	waiting, flying map[types.UID]*queued
	// byClaim has the waiting pods by the ResourceClaims that they name.
	byClaim map[types.NamespacedName]map[types.UID]*queued
	// cause is the revision of the change that is being handled; 0 if it is unknown.
	cause int64

	// gate names the PreEnqueue plugin that refuses the pod, and the events after which it may
	// change its mind; "" means that the pod may become active.
	gate func(*framework.PodInfo) (plugin string, wants framework.Events)
	// helps reports whether a change may cure the refusal of one of the plugins. The change is one
	// of the events that the pod waits for.
	helps func(*queued, *framework.Change) bool

	initialBackoff, maxBackoff time.Duration
	metrics                    *Metrics
}

func newQueue(metrics *Metrics) *queue {
	q := &queue{
		metrics: metrics,
		pods:    map[types.UID]*queued{}, waiting: map[types.UID]*queued{}, flying: map[types.UID]*queued{},
		byClaim:        map[types.NamespacedName]map[types.UID]*queued{},
		erred:          podHeap{less: func(a, b *queued) bool { return a.until.Before(b.until) }},
		gate:           func(*framework.PodInfo) (string, framework.Events) { return "", 0 },
		helps:          func(*queued, *framework.Change) bool { return true },
		initialBackoff: initialBackoff, maxBackoff: maxBackoff,
	}
	q.sortBy(nil)
	return q
}

func byPriority(a, b *queued) bool {
	if pa, pb := priority(a.info.Pod), priority(b.info.Pod); pa != pb {
		return pa > pb
	}
	return a.since.Before(b.since)
}

// sortBy orders the active pods and those in backoff anew. As upstream (KEP-5142), pods whose
// backoff ends in the same second are ordered like active ones.
func (q *queue) sortBy(sort framework.QueueSortPlugin) {
	q.active.less = byPriority
	if sort != nil {
		q.active.less = func(a, b *queued) bool { return sort.Less(&a.sorted, &b.sorted) }
	}
	q.backoff.less = func(a, b *queued) bool {
		if sa, sb := a.until.Unix(), b.until.Unix(); sa != sb {
			return sa < sb
		}
		return q.active.less(a, b)
	}
	heap.Init(&q.active)
	heap.Init(&q.backoff)
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
		if !q.gates(p, "UnschedulablePodAdd") {
			q.activate(p, "UnschedulablePodAdd")
		}
		return
	}
	p.info = info
	switch {
	case p.place == active || p.place == backoff:
		p.sorted.Pod = info
		heap.Fix(q.heapOf(p), p.index)
	case (p.place == unschedulable || p.place == gated) && changed:
		q.retry(p, "UnschedulablePodUpdate", now)
	case p.place == inFlight && changed:
		p.missed |= framework.SelfChanged
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
	case active, backoff:
		heap.Remove(q.heapOf(p), p.index)
	case unschedulable, gated:
		q.stopWaiting(p)
	case inFlight:
		delete(q.flying, p.info.Pod.UID)
	}
	p.place = nowhere
}

// heapOf returns the heap of an active pod or one in backoff.
func (q *queue) heapOf(p *queued) *podHeap {
	switch {
	case p.place == active:
		return &q.active
	case p.erred:
		return &q.erred
	}
	return &q.backoff
}

// gates moves the pod to the gated ones if a PreEnqueue plugin refuses it. gates, activate, retry
// and refused count the reason in the metrics, in upstream's words.
func (q *queue) gates(p *queued, why string) bool {
	plugin, wants := q.gate(p.info)
	if plugin == "" {
		return false
	}
	again := p.place == gated
	q.leave(p)
	p.place, p.wants, p.refused = gated, wants, []string{plugin}
	q.wait(p)
	if !again {
		q.metrics.queuedTo(unschedulable, why)
	}
	return true
}

func (q *queue) activate(p *queued, why string) {
	q.leave(p)
	q.push(p, active, why)
}

// push adds a pod to the heap of a place.
func (q *queue) push(p *queued, to place, why string) {
	p.place = to
	p.sorted = framework.QueuedPod{Pod: p.info, Since: p.since, Attempts: p.attempts}
	q.metrics.queuedTo(to, why)
	heap.Push(q.heapOf(p), p)
}

// retry makes a pod active after the rest of its backoff, unless a plugin gates it.
func (q *queue) retry(p *queued, why string, now time.Time) {
	wasGated := p.place == gated
	if q.gates(p, why) {
		return
	}
	if wasGated {
		p.refused = nil
		if p.attempts == 0 {
			p.since = now
		}
	}
	q.leave(p)
	p.until = p.tried.Add(q.backoffOf(p.attempts))
	if !p.until.After(now) {
		q.activate(p, why)
		return
	}
	q.push(p, backoff, why)
}

// backoffOf is 1 s after the first attempt, and doubles up to 10 s, unless configured otherwise.
func (q *queue) backoffOf(attempts int) time.Duration {
	if attempts == 0 {
		return 0
	}
	d := q.initialBackoff
	for range attempts - 1 {
		if d *= 2; d >= q.maxBackoff {
			break
		}
	}
	return min(d, q.maxBackoff)
}

// pop takes the next pod to try; ok is false if there is none. While no pod is active it ends
// backoffs early, but not after a failure.
func (q *queue) pop(now time.Time) (p *queued, ok bool) {
	for _, h := range []*podHeap{&q.backoff, &q.erred} {
		for len(h.items) > 0 && !h.items[0].until.After(now) {
			q.activate(h.items[0], "BackoffComplete")
		}
	}
	if len(q.active.items) == 0 {
		if len(q.backoff.items) == 0 {
			return nil, false
		}
		q.activate(q.backoff.items[0], "PopFromBackoffQ")
	}
	p = heap.Pop(&q.active).(*queued)
	q.fly(p, now)
	return p, true
}

// take takes a certain pod to try, wherever it waits, unless a plugin gates it.
func (q *queue) take(uid types.UID, now time.Time) (p *queued, ok bool) {
	q.moveNow(uid)
	if p, ok = q.pods[uid]; !ok || p.place != active {
		return nil, false
	}
	q.leave(p)
	q.fly(p, now)
	return p, true
}

// fly begins an attempt.
func (q *queue) fly(p *queued, now time.Time) {
	p.place, p.tried, p.refused, p.erred = inFlight, now, nil, false
	p.attempts++
	p.missed, p.missedCauses = 0, because.Revisions{}
	q.flying[p.info.Pod.UID] = p
}

// refused returns a pod that found no node to the queue. It waits for one of the events, unless one
// came during the attempt.
func (q *queue) refused(p *queued, wants framework.Events, now time.Time) {
	if q.pods[p.info.Pod.UID] != p {
		return // deleted during the attempt
	}
	if p.missed&wants != 0 || wants == 0 {
		p.woken.AddAll(p.missedCauses)
		p.erred = wants == 0 // no event is known to help, so only time may
		q.retry(p, attemptFailed, now)
		return
	}
	q.leave(p)
	p.place, p.wants, p.until = unschedulable, wants, now.Add(maxInUnschedulable)
	q.wait(p)
	q.metrics.queuedTo(unschedulable, attemptFailed)
}

// failed returns a pod to the queue whose attempt ended in an error. It is retried after its
// backoff.
func (q *queue) failed(p *queued, now time.Time) {
	if q.pods[p.info.Pod.UID] == p {
		p.erred = true
		q.retry(p, attemptFailed, now)
	}
}

// moveNow makes a waiting pod active without its backoff, unless a plugin gates it.
func (q *queue) moveNow(uid types.UID) {
	p, ok := q.pods[uid]
	if !ok || p.place == active || p.place == inFlight || q.gates(p, forceActivate) {
		return
	}
	q.activate(p, forceActivate)
}

// forceActivate is the reason for pods that a plugin activates, in upstream's words.
const forceActivate = "ForceActivate"

// wake wakes the pods that wait for the event.
func (q *queue) wake(e framework.Events, now time.Time) {
	q.wakeFor(&framework.Change{Events: e}, nil, now)
}

// wakeFor wakes those of the waiting pods that the change concerns; nil means all of them.
func (q *queue) wakeFor(change *framework.Change, concerns func(*framework.PodInfo) bool, now time.Time) {
	defer q.miss(change.Events)()
	for _, p := range q.waiting {
		switch {
		case p.wants&change.Events != 0 && (concerns == nil || concerns(p.info)) && q.wakePod(p, change, now):
		case p.place == unschedulable && !p.until.After(now):
			p.flushed = true
			q.retry(p, "UnschedulableTimeout", now)
		}
	}
}

// wakeUsers wakes the waiting pods that name the claim, and the one for which it was made. It does
// not look at the others: there may be thousands of pods with claims of their own.
func (q *queue) wakeUsers(claim *resourcev1.ResourceClaim, now time.Time) {
	change := &framework.Change{Events: framework.ResourceClaimChanged}
	defer q.miss(change.Events)()
	for _, p := range q.byClaim[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] {
		q.wakePod(p, change, now)
	}
	if owner := metav1.GetControllerOfNoCopy(claim); owner != nil && framework.IsExtendedClaim(claim) {
		if p, ok := q.waiting[owner.UID]; ok {
			q.wakePod(p, change, now)
		}
	}
}

// miss notes an event for the pods that are tried or bound. The function that it returns measures
// the time.
func (q *queue) miss(e framework.Events) (done func()) {
	if e == 0 {
		return func() {}
	}
	for _, p := range q.flying {
		p.missed |= e
		p.missedCauses.Add(q.cause)
	}
	began := time.Now()
	return func() { q.metrics.eventTimes.WithLabelValues(e.Name()).Observe(time.Since(began).Seconds()) }
}

// wakePod wakes a pod if it waits for the event and the change may cure a refusal.
func (q *queue) wakePod(p *queued, change *framework.Change, now time.Time) bool {
	if p.wants&change.Events == 0 || !q.helps(p, change) {
		return false
	}
	p.woken.Add(q.cause)
	p.flushed = false
	q.retry(p, (p.wants & change.Events).Name(), now)
	return true
}

// wait puts a pod to the waiting ones.
func (q *queue) wait(p *queued) {
	q.waiting[p.info.Pod.UID] = p
	p.claims = claimsOf(p.info.Pod)
	for _, name := range p.claims {
		if q.byClaim[name] == nil {
			q.byClaim[name] = map[types.UID]*queued{}
		}
		q.byClaim[name][p.info.Pod.UID] = p
	}
}

func (q *queue) stopWaiting(p *queued) {
	delete(q.waiting, p.info.Pod.UID)
	for _, name := range p.claims {
		if delete(q.byClaim[name], p.info.Pod.UID); len(q.byClaim[name]) == 0 {
			delete(q.byClaim, name)
		}
	}
	p.claims = nil
}

// claimsOf returns the ResourceClaims that a pod names.
func claimsOf(pod *corev1.Pod) (names []types.NamespacedName) {
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			names = append(names, types.NamespacedName{Namespace: pod.Namespace, Name: *name})
		}
	}
	for i := range pod.Status.ResourceClaimStatuses {
		if name := pod.Status.ResourceClaimStatuses[i].ResourceClaimName; name != nil {
			names = append(names, types.NamespacedName{Namespace: pod.Namespace, Name: *name})
		}
	}
	return names
}

// next is the earliest time at which a pod becomes active by itself; ok is false if there is none.
func (q *queue) next() (at time.Time, ok bool) {
	for _, h := range []*podHeap{&q.backoff, &q.erred} {
		if len(h.items) > 0 && (!ok || h.items[0].until.Before(at)) {
			at, ok = h.items[0].until, true
		}
	}
	for _, p := range q.waiting {
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
