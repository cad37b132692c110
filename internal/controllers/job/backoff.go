package job

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/controller"
)

// The delay of the next pod after a failure: 10 s, 20 s, 40 s and so on, at most 10 minutes.
const (
	firstPause = 10 * time.Second
	lastPause  = 10 * time.Minute
)

// backoff is the record of a job's failures since its last success. It is lost when the process
// ends: the first pod after a restart is not delayed.
type backoff struct {
	failures int
	last     time.Time
	seen     map[types.UID]bool // ended pods counted so far that still exist
}

func (c *jobs) backoffOf(uid types.UID) *backoff {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.backoffs[uid]
	if !ok {
		b = &backoff{seen: map[types.UID]bool{}}
		c.backoffs[uid] = b
	}
	return b
}

func (c *jobs) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.backoffs, uid)
}

// countEnded counts newly ended pods in the order of their ends.
func (b *backoff) countEnded(pods []*corev1.Pod, failed func(*corev1.Pod) bool, now time.Time) {
	exists := map[types.UID]bool{}
	var fresh []*corev1.Pod
	for _, p := range pods {
		exists[p.UID] = true
		if !b.seen[p.UID] && (p.Status.Phase == corev1.PodSucceeded || failed(p)) {
			fresh = append(fresh, p)
			b.seen[p.UID] = true
		}
	}
	for uid := range b.seen {
		if !exists[uid] {
			delete(b.seen, uid)
		}
	}
	slices.SortStableFunc(fresh, func(x, y *corev1.Pod) int { return endOf(x, now).Compare(endOf(y, now)) })
	for _, p := range fresh {
		if p.Status.Phase == corev1.PodSucceeded {
			b.failures, b.last = 0, time.Time{}
			continue
		}
		b.failures++
		b.last = endOf(p, now)
	}
}

// remaining returns the remaining delay of the next pod.
func (b *backoff) remaining(now time.Time) time.Duration {
	return pause(b.failures, b.last, now)
}

// pause returns the rest of the delay after the number of failures; last is the time of the last
// one.
func pause(failures int, last, now time.Time) time.Duration {
	if failures == 0 {
		return 0
	}
	wait := lastPause
	if failures <= 6 { // 10 s << 6 is more than 10 minutes
		wait = min(firstPause<<(failures-1), lastPause)
	}
	return max(0, last.Add(wait).Sub(now))
}

// endOf returns the time of a pod's end: when its last container ended, or when it stopped being
// ready, or now.
func endOf(p *corev1.Pod, now time.Time) time.Time {
	var end time.Time
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for _, s := range list {
			if s.State.Terminated != nil && s.State.Terminated.FinishedAt.After(end) {
				end = s.State.Terminated.FinishedAt.Time
			}
		}
	}
	if !end.IsZero() {
		return end
	}
	if p.DeletionTimestamp != nil {
		grace := time.Duration(0)
		if p.DeletionGracePeriodSeconds != nil {
			grace = time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
		}
		return p.DeletionTimestamp.Add(-grace)
	}
	if c := controller.PodCondition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return now
}
