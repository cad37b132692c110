package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// slowStatus is a client that keeps the order of writes; its status patches wait.
type slowStatus struct {
	binding
	patching, release chan struct{}

	mu     sync.Mutex
	writes []string
}

func (s *slowStatus) add(write string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, write)
}

func (s *slowStatus) CreateSub(ctx context.Context, res schema.GroupVersionResource, ns, name, sub string, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	s.add("binding")
	return s.binding.CreateSub(ctx, res, ns, name, sub, obj, opts)
}

func (s *slowStatus) Patch(_ context.Context, _ schema.GroupVersionResource, _, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (runtime.Object, error) {
	s.patching <- struct{}{}
	<-s.release
	s.add(string(data))
	return &corev1.Pod{}, nil
}

// A refusal written after the binding would leave the condition PodScheduled false.
func TestNoRefusalIsWrittenAfterTheBinding(t *testing.T) {
	c := &slowStatus{patching: make(chan struct{}, 9), release: make(chan struct{})}
	s := New(Config{Client: c, Events: noEvents{}})
	p := pod("p", "")
	s.report(t.Context(), p, "Unschedulable", "first", nil)
	<-c.patching
	s.report(t.Context(), p, "Unschedulable", "second", nil) // waits for the first
	g := gate{open: make(chan struct{})}
	close(g.open)
	q := decided(s, p, g)
	q.profile.PreBinds = nil
	s.finish(t.Context(), q)
	for s.reports.waits(p.UID) { // until the binding drops the second refusal
		time.Sleep(time.Millisecond)
	}
	close(c.release)
	s.writing.Wait()
	if len(c.writes) != 2 || !strings.Contains(c.writes[0], "first") || c.writes[1] != "binding" {
		t.Errorf("writes: %q", c.writes)
	}
}
