package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// binding is a client that accepts bindings and counts the concurrent ones.
type binding struct {
	client.Interface
	during func()

	mu               sync.Mutex
	now, most, total int
}

func (b *binding) CreateSub(_ context.Context, _ schema.GroupVersionResource, _, _, _ string, obj runtime.Object, _ metav1.CreateOptions) (runtime.Object, error) {
	b.mu.Lock()
	b.now++
	b.most = max(b.most, b.now)
	b.mu.Unlock()
	if b.during != nil {
		b.during()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now--
	b.total++
	return obj, nil
}

// Patch accepts nominated nodes.
func (b *binding) Patch(context.Context, schema.GroupVersionResource, string, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (runtime.Object, error) {
	return &corev1.Pod{}, nil
}

type noEvents struct{}

func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// gate is a plugin whose PreBind waits until it is opened.
type gate struct {
	open    chan struct{}
	outcome error
}

func (gate) Name() string { return "Gate" }
func (g gate) PreBind(ctx context.Context, _ framework.State, _ *corev1.Pod, _ string) *framework.Status {
	select {
	case <-g.open:
	case <-ctx.Done():
	}
	if g.outcome != nil {
		return framework.Fail(g.outcome)
	}
	return nil
}
func (gate) PreBindPreFlight(framework.State, *corev1.Pod, string) bool { return true }
func (gate) Reserve(context.Context, framework.State, *corev1.Pod, string) *framework.Status {
	return nil
}
func (gate) Unreserve(_ context.Context, _ framework.State, pod *corev1.Pod, _ string) {
	_ = pod.Name // real plugins read the pod too
}

// decided takes the pod from the queue and returns its cycle, with the gate as plugin.
func decided(s *Scheduler, p *corev1.Pod, g gate) *cycle {
	s.queue.put(framework.NewPodInfo(p), true, time.Now())
	q, _ := s.queue.pop(time.Now())
	profile := &framework.Profile{Reserves: []framework.ReservePlugin{g}, PreBinds: []framework.PreBindPlugin{g}}
	return &cycle{p: q, pod: q.info.Pod, node: "n", profile: profile, state: framework.State{}}
}

// This test is for the race detector: the scheduler's goroutine updates the pod while PreBind and
// the binding read their own version.
func TestAPodMayChangeDuringItsBinding(t *testing.T) {
	for name, outcome := range map[string]error{"bound": nil, "given up": errors.New("no")} {
		t.Run(name, func(t *testing.T) {
			c := &binding{}
			s := New(Config{Client: c, Events: noEvents{}})
			g := gate{open: make(chan struct{}), outcome: outcome}
			s.finish(t.Context(), decided(s, pod("p", ""), g))
			close(g.open)
			s.queue.put(framework.NewPodInfo(pod("p", "", withPriority(1))), true, time.Now())
			s.writing.Wait()
			if bound := c.total == 1; bound != (outcome == nil) {
				t.Errorf("%d bindings were written", c.total)
			}
		})
	}
}

func TestBindersLimitConcurrentBindings(t *testing.T) {
	const pods = 8
	c := &binding{during: func() { time.Sleep(time.Millisecond) }}
	s := New(Config{Client: c, Events: noEvents{}, Binders: 2})
	g := gate{open: make(chan struct{})}
	for i := range pods {
		s.finish(t.Context(), decided(s, pod(fmt.Sprint("p", i), ""), g))
	}
	close(g.open)
	s.writing.Wait()
	if c.total != pods || c.most > 2 {
		t.Errorf("%d bindings were written, %d at a time", c.total, c.most)
	}
}

func TestAPodStopsWaitingForABinderWhenTheSchedulerEnds(t *testing.T) {
	c := &binding{}
	s := New(Config{Client: c, Events: noEvents{}, Binders: 1})
	ctx, cancel := context.WithCancel(t.Context())
	g := gate{open: make(chan struct{})}
	if err := s.acquireBinder(ctx); err != nil {
		t.Fatal(err)
	}
	s.finish(ctx, decided(s, pod("p", ""), g))
	close(g.open)
	cancel()
	s.writing.Wait()
	if c.total != 0 {
		t.Error("it was bound")
	}
}
