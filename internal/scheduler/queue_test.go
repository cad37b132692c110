package scheduler

import (
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

func TestQueueOrdersByPriorityThenAge(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	q.put(framework.NewPodInfo(pod("old", "")), false, now)
	q.put(framework.NewPodInfo(pod("young", "")), false, now.Add(time.Second))
	q.put(framework.NewPodInfo(pod("high", "", withPriority(7))), false, now.Add(2*time.Second))
	for _, want := range []string{"high", "old", "young"} {
		if p, ok := q.pop(now); !ok || p.info.Pod.Name != want {
			t.Fatalf("got %v, want %s", p, want)
		}
	}
}

func TestRefusedPodsWaitForEventsThatMayHelp(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	q.put(framework.NewPodInfo(pod("p", "")), false, now)
	p, _ := q.pop(now)
	q.refused(p, framework.NodeAdded, now)
	q.wake(framework.PodRemoved, now.Add(time.Minute))
	if _, ok := q.pop(now.Add(time.Minute)); ok {
		t.Fatal("woken by an event that does not help")
	}
	q.wake(framework.NodeAdded, now.Add(time.Minute))
	if _, ok := q.pop(now.Add(time.Minute)); !ok {
		t.Fatal("not woken by the event that helps")
	}
}

func TestAnEventDuringTheAttemptIsNotLost(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	q.put(framework.NewPodInfo(pod("p", "")), false, now)
	p, _ := q.pop(now)
	q.wake(framework.NodeAdded, now)
	q.refused(p, framework.NodeAdded, now)
	if _, ok := q.pop(now); ok {
		t.Fatal("tried again without backoff")
	}
	if at, ok := q.next(); !ok || !at.Equal(now.Add(initialBackoff)) {
		t.Fatalf("next at %v %v, want after the backoff", at, ok)
	}
	if _, ok := q.pop(now.Add(initialBackoff)); !ok {
		t.Fatal("not tried after the backoff")
	}
}

func TestARefusedPodIsRetriedAfterFiveMinutes(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	q.put(framework.NewPodInfo(pod("p", "")), false, now)
	p, _ := q.pop(now)
	q.refused(p, framework.NodeAdded, now)
	q.wake(0, now.Add(maxInUnschedulable))
	if _, ok := q.pop(now.Add(maxInUnschedulable)); !ok {
		t.Fatal("still waiting")
	}
}

func TestAPodBeingTriedDoesNotCountAsRefused(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	s := &Scheduler{queue: q, cluster: newCluster(nil, nil)}
	q.put(framework.NewPodInfo(pod("p", "")), false, now)
	p, _ := q.pop(now)
	p.refused = []string{"NodeAffinity"}
	q.refused(p, framework.NodeAdded, now)
	if n := s.sizes().refused; len(n) != 1 {
		t.Fatalf("refused: %v", n)
	}
	q.wake(framework.NodeAdded, now.Add(time.Minute))
	if _, ok := q.pop(now.Add(time.Minute)); !ok {
		t.Fatal("not tried again")
	}
	if n := s.sizes().refused; len(n) != 0 {
		t.Errorf("refused, while it is tried: %v", n)
	}
}
