package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/insight/because"
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
	if at, ok := q.next(); !ok || !at.Equal(now.Add(initialBackoff)) {
		t.Fatalf("next at %v %v, want after the backoff", at, ok)
	}
	if _, ok := q.pop(now.Add(initialBackoff)); !ok {
		t.Fatal("not tried after the backoff")
	}
}

func TestBackoffEndsEarlyWhenNothingElseIsReady(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 5e8)
	q.put(framework.NewPodInfo(pod("failed", "", withPriority(9))), false, now)
	p, _ := q.pop(now)
	q.failed(p, now)
	for i, name := range []string{"low", "high", "later"} {
		at := now.Add(time.Duration(i) * 350 * time.Millisecond) // the last ends in the next second
		q.put(framework.NewPodInfo(pod(name, "", withPriority(int32(len(name))))), false, at)
		p, _ := q.pop(at)
		q.wake(framework.NodeAdded, at) // during the attempt
		q.refused(p, framework.NodeAdded, at)
	}
	q.put(framework.NewPodInfo(pod("ready", "")), false, now)
	for _, want := range []string{"ready", "high", "low", "later"} {
		if p, ok := q.pop(now); !ok || p.info.Pod.Name != want {
			t.Fatalf("popped %v, want %s", p, want)
		}
	}
	if p, ok := q.pop(now); ok {
		t.Fatalf("popped %s during the backoff after a failure", p.info.Pod.Name)
	}
	if at, ok := q.next(); !ok || !at.Equal(now.Add(initialBackoff)) {
		t.Fatalf("next at %v %v", at, ok)
	}
	if p, ok := q.pop(now.Add(initialBackoff)); !ok || p.info.Pod.Name != "failed" {
		t.Fatalf("popped %v, want failed", p)
	}
}

func TestAPodWithoutHelpfulEventsKeepsItsBackoff(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	q.put(framework.NewPodInfo(pod("p", "")), false, now)
	p, _ := q.pop(now)
	q.refused(p, 0, now)
	if _, ok := q.pop(now); ok {
		t.Fatal("tried again without backoff")
	}
	if _, ok := q.pop(now.Add(initialBackoff)); !ok {
		t.Fatal("not tried after the backoff")
	}
}

func TestAPodKnowsTheChangesThatWokeIt(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	q.put(framework.NewPodInfo(pod("p", "")), false, now)
	p, _ := q.pop(now)
	q.cause = 70
	q.wake(framework.NodeAdded, now) // during the attempt
	q.refused(p, framework.NodeAdded, now)
	if !slices.Equal(p.woken.All(), []int64{70}) {
		t.Errorf("%v", p.woken.All())
	}
	p, _ = q.pop(now.Add(time.Minute))
	p.woken = because.Revisions{}
	q.refused(p, framework.NodeAdded, now.Add(time.Minute))
	q.cause = 80
	q.wake(framework.PodRemoved, now.Add(2*time.Minute)) // does not help
	q.cause = 90
	q.wake(framework.NodeAdded, now.Add(2*time.Minute))
	if !slices.Equal(p.woken.All(), []int64{90}) {
		t.Errorf("%v", p.woken.All())
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

func TestARemovedPodDoesNotWaitAnyMore(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	for _, name := range []string{"a", "b"} {
		q.put(framework.NewPodInfo(pod(name, "")), false, now)
		p, _ := q.pop(now)
		q.refused(p, framework.NodeAdded, now)
	}
	q.remove(pod("a", "").UID)
	q.wake(framework.NodeAdded, now.Add(time.Minute))
	if p, ok := q.pop(now.Add(time.Minute)); !ok || p.info.Pod.Name != "b" {
		t.Fatalf("woke %v, want b", p)
	}
	if p, ok := q.pop(now.Add(time.Minute)); ok {
		t.Fatalf("woke %v too", p)
	}
}

func TestAClaimWakesThePodsThatUseIt(t *testing.T) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	name, template, extended := "c", "t", freeClaim("extended")
	uses := map[string]func(*corev1.Pod){
		"by name": func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r", ResourceClaimName: &name}}
		},
		"by template": func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r", ResourceClaimTemplateName: &template}}
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: &name}}
		},
		"by resource": func(p *corev1.Pod) {
			yes := true
			extended.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
			extended.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: &yes}}
		},
		"not": func(*corev1.Pod) {},
	}
	uses["in another namespace"] = func(p *corev1.Pod) { uses["by name"](p); p.Namespace = "other" }
	for use, change := range uses {
		q.put(framework.NewPodInfo(pod(use, "", func(p *corev1.Pod) { p.Namespace = "ns"; change(p) })), false, now)
		p, _ := q.pop(now)
		q.refused(p, framework.ResourceClaimChanged, now)
	}
	now = now.Add(time.Minute)
	woken := func() (names []string) {
		for p, ok := q.pop(now); ok; p, ok = q.pop(now) {
			names = append(names, p.info.Pod.Name)
		}
		slices.Sort(names)
		return names
	}
	q.wakeUsers(freeClaim("c"), now)
	if got := woken(); !slices.Equal(got, []string{"by name", "by template"}) {
		t.Errorf("the claim woke %v", got)
	}
	q.wakeUsers(extended, now)
	if got := woken(); !slices.Equal(got, []string{"by resource"}) {
		t.Errorf("the claim for extended resources woke %v", got)
	}
	for uid := range q.pods {
		q.remove(uid)
	}
	if len(q.byClaim) > 0 || len(q.waiting) > 0 {
		t.Errorf("removed pods still wait: %v", q.byClaim)
	}
}

// An event must not cost more because many pods are ready.
func BenchmarkWakeBesideReadyPods(b *testing.B) {
	q, now := newQueue(NewMetrics()), time.Unix(1000, 0)
	for i := range 5000 {
		q.put(framework.NewPodInfo(pod(fmt.Sprint("p", i), "")), false, now)
	}
	b.ReportAllocs()
	for b.Loop() {
		q.wake(framework.PodAssigned, now)
	}
}
