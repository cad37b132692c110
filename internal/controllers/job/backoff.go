package job

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/controller"
)

// How long after a failure the next pod waits: 10 s, 20 s, 40 s and so on, 10 minutes at most.
const (
	firstPause = 10 * time.Second
	lastPause  = 10 * time.Minute
)

// backoff is what is remembered of a job's failures since its last success. Forgotten when the process ends: then the
// first pod after it does not wait.
type backoff struct {
	failures int
	last     time.Time
	seen     map[types.UID]bool // ended pods that are counted here, while they exist
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

// note counts pods that have ended, in the order of their ends.
func (b *backoff) note(pods []*corev1.Pod, failed func(*corev1.Pod) bool, now time.Time) {
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

// remaining is how long the next pod has to wait.
func (b *backoff) remaining(now time.Time) time.Duration {
	return pause(b.failures, b.last, now)
}

// pause is what is left of the wait after so many failures, the last at a time.
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

// endOf is when a pod ended: the last of its containers, or when it stopped being ready, or now.
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
