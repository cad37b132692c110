package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// permission is a Permit plugin that answers with a code.
type permission struct {
	code    framework.Code
	timeout time.Duration
	undone  chan struct{} // closed by Unreserve
}

func (permission) Name() string { return "Permission" }

func (p permission) Permit(context.Context, framework.State, *corev1.Pod, string) (*framework.Status, time.Duration) {
	return &framework.Status{Code: p.code, Reasons: []string{"asked"}}, p.timeout
}

func (permission) Reserve(context.Context, framework.State, *corev1.Pod, string) *framework.Status {
	return nil
}

func (p permission) Unreserve(context.Context, framework.State, *corev1.Pod, string) { close(p.undone) }
func (permission) RequeueOn() framework.Events                                       { return framework.NodeAdded }

// asking decides a pod whose binding asks the plugin.
func asking(t *testing.T, p permission) (*Scheduler, *binding) {
	t.Helper()
	c := &binding{}
	s := New(Config{Client: c, Events: noEvents{}})
	s.cluster = newCluster(nil, nil)
	cycle := decided(s, pod("p", ""), gate{})
	cycle.profile = &framework.Profile{
		SchedulerName: corev1.DefaultSchedulerName,
		Reserves:      []framework.ReservePlugin{p}, Permits: []framework.PermitPlugin{p},
	}
	s.requeues[corev1.DefaultSchedulerName] = requeuesOf(cycle.profile)
	s.cluster.assume(cycle.p.info, "n")
	s.finish(t.Context(), cycle)
	return s, c
}

func TestAWaitingPodIsBoundWhenAllowed(t *testing.T) {
	s, c := asking(t, permission{code: framework.Wait, timeout: time.Hour, undone: make(chan struct{})})
	h := handle{s}
	if len(h.WaitingPods()) != 1 || c.total != 0 {
		t.Fatalf("%d pods wait, %d are bound", len(h.WaitingPods()), c.total)
	}
	// Other pods go on meanwhile.
	other := decided(s, pod("other", ""), gate{})
	other.profile = &framework.Profile{}
	s.finish(t.Context(), other)
	w, _ := h.WaitingPod("p")
	if got := w.PendingPlugins(); len(got) != 1 || got[0] != "Permission" || w.Node() != "n" {
		t.Errorf("pending %v on %s", got, w.Node())
	}
	w.Allow("Other")
	w.Allow("Permission")
	s.writing.Wait()
	if c.total != 2 {
		t.Errorf("%d bindings", c.total)
	}
	if _, ok := h.WaitingPod("p"); ok {
		t.Error("still waiting")
	}
}

func TestARefusedPodGivesUpItsNode(t *testing.T) {
	for name, p := range map[string]permission{
		"refused at once": {code: framework.Unschedulable},
		"timed out":       {code: framework.Wait, timeout: time.Nanosecond},
		"rejected later":  {code: framework.Wait, timeout: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			p.undone = make(chan struct{})
			s, c := asking(t, p)
			if w, ok := (handle{s}).WaitingPod("p"); ok && p.timeout == time.Hour {
				w.Reject("Permission", "no")
			}
			<-p.undone
			s.writing.Wait()
			s.drain()
			s.writing.Wait()
			q := s.queue.pods["p"]
			if c.total != 0 || q == nil || q.place != unschedulable || strings.Join(q.refused, "") != "Permission" || q.wants != framework.NodeAdded {
				t.Errorf("%d bindings, queued %+v", c.total, q)
			}
			if len(s.cluster.assumed) != 0 {
				t.Error("it still counts on its node")
			}
		})
	}
}

func TestGatedPodsAreNotTried(t *testing.T) {
	s, now := New(Config{Client: &binding{}, Events: noEvents{}}), time.Unix(1000, 0)
	s.cluster = newCluster(nil, nil)
	gated := pod("p", "")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
	s.onPod(nil, gated, false, now)
	if _, ok := s.queue.pop(now); ok {
		t.Fatal("tried with a gate")
	}
	if n := s.sizes(); n.refused[refusal{"SchedulingGates", corev1.DefaultSchedulerName}] != 1 {
		t.Errorf("refused: %v", n.refused)
	}
	s.queue.wake(framework.NodeAdded, now)
	handle{s}.Activate("p")
	s.drain()
	if _, ok := s.queue.pop(now); ok {
		t.Fatal("tried with a gate, after events")
	}
	s.onPod(gated, pod("p", ""), false, now.Add(time.Minute))
	p, ok := s.queue.pop(now.Add(time.Minute))
	if !ok || !p.since.Equal(now.Add(time.Minute)) || len(p.refused) != 0 {
		t.Errorf("not tried without the gate: %+v", p)
	}
}
