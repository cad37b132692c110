package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// maxPermitWait is the longest wait for a permission, as upstream.
const maxPermitWait = 15 * time.Minute

// waitingPod is a decided pod that waits for the permission of plugins. Safe for concurrent use.
type waitingPod struct {
	pod  *corev1.Pod
	node string
	// ended gets the one result: nil is the permission of all plugins.
	ended chan *framework.Status

	mu      sync.Mutex
	pending map[string]*time.Timer // by plugin; a timer rejects the pod
	over    bool
}

func (w *waitingPod) Pod() *corev1.Pod { return w.pod }
func (w *waitingPod) Node() string     { return w.node }

func (w *waitingPod) PendingPlugins() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.pending))
}

func (w *waitingPod) Allow(plugin string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	timer, ok := w.pending[plugin]
	if !ok {
		return
	}
	timer.Stop()
	delete(w.pending, plugin)
	if len(w.pending) == 0 {
		w.end(nil)
	}
}

func (w *waitingPod) Reject(plugin, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := framework.Refuse(reason)
	status.Plugin = plugin
	w.end(status)
}

// end gives the result once. The caller holds mu.
func (w *waitingPod) end(status *framework.Status) {
	if w.over {
		return
	}
	w.over = true
	for _, timer := range w.pending {
		timer.Stop()
	}
	clear(w.pending)
	w.ended <- status
}

// waitingPods are the pods that wait for their permission. Safe for concurrent use.
type waitingPods struct {
	mu   sync.RWMutex
	pods map[types.UID]*waitingPod
}

// add lets a pod wait. Each plugin has its own timeout.
func (w *waitingPods) add(pod *corev1.Pod, node string, timeouts map[string]time.Duration) *waitingPod {
	p := &waitingPod{pod: pod, node: node, ended: make(chan *framework.Status, 1), pending: map[string]*time.Timer{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	for plugin, timeout := range timeouts {
		timeout = min(timeout, maxPermitWait)
		p.pending[plugin] = time.AfterFunc(timeout, func() {
			p.Reject(plugin, fmt.Sprintf("rejected due to timeout after waiting %v at plugin %v", timeout, plugin))
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods == nil {
		w.pods = map[types.UID]*waitingPod{}
	}
	w.pods[pod.UID] = p
	return p
}

func (w *waitingPods) get(uid types.UID) (*waitingPod, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	p, ok := w.pods[uid]
	return p, ok
}

func (w *waitingPods) all() []framework.WaitingPod {
	w.mu.RLock()
	defer w.mu.RUnlock()
	out := make([]framework.WaitingPod, 0, len(w.pods))
	for _, p := range w.pods {
		out = append(out, p)
	}
	return out
}

// wait waits for the permission of a pod that add has returned, and forgets the pod.
func (w *waitingPods) wait(ctx context.Context, p *waitingPod) *framework.Status {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.pods[p.pod.UID] == p {
			delete(w.pods, p.pod.UID)
		}
	}()
	select {
	case status := <-p.ended:
		return status
	case <-ctx.Done():
		p.Reject("", "the scheduler ends") // stops the timers
		return framework.Fail(ctx.Err())
	}
}

// permit asks the Permit plugins. It returns the pod if one of them lets it wait.
func (s *Scheduler) permit(ctx context.Context, c *cycle) (*waitingPod, *framework.Status) {
	if len(c.profile.Permits) == 0 {
		return nil, nil
	}
	timeouts := map[string]time.Duration{}
	for _, p := range c.profile.Permits {
		began := time.Now()
		status, timeout := p.Permit(ctx, c.state, c.pod, c.node)
		s.metrics.ran(p, "Permit", status, began)
		switch {
		case status.OK():
		case status.Code == framework.Wait:
			timeouts[p.Name()] = timeout
		default:
			return nil, namedStatus("Permit", p, status)
		}
	}
	if len(timeouts) == 0 {
		return nil, nil
	}
	return s.waiting.add(c.pod, c.node, timeouts), nil
}

// handle is the scheduler as its plugins see it.
type handle struct{ *Scheduler }

func (h handle) WaitingPod(uid types.UID) (framework.WaitingPod, bool) {
	p, ok := h.waiting.get(uid)
	return p, ok
}

func (h handle) WaitingPods() []framework.WaitingPod { return h.waiting.all() }

func (h handle) Activate(pods ...types.UID) {
	h.post(func(time.Time) {
		for _, uid := range pods {
			h.queue.moveNow(uid)
		}
	})
}

func (h handle) Wake(change framework.Change) {
	h.post(func(now time.Time) { h.queue.wakeFor(&change, nil, now) })
}
