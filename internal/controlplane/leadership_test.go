package controlplane

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

func TestControllersAndSchedulerRunOnOneServerAtATime(t *testing.T) {
	s := newSea(t)
	boats := []*boat{s.launch(t, "oak"), s.launch(t, "ash"), s.launch(t, "elm")}
	boats[2].makeNode(t, "n")
	first := leader(t, boats...)
	boats[2].deploy(t, "one", 3)
	boats[2].sails(t, "one", 3)
	before := boats[2].shownAs(t, first.name+"_")
	first.wantMetric(t, 1)
	rest := without(boats, first)
	for _, b := range rest {
		b.wantMetric(t, 0)
	}
	comes(t, "an event", func() bool {
		events, err := client.Open[*corev1.Event](t.Context(), rest[0].admin, client.Scope{Namespace: "kube-system"})
		return err == nil && slices.ContainsFunc(events.List("kube-system", nil), func(e *corev1.Event) bool {
			return e.Reason == "LeaderElection" && e.InvolvedObject.Kind == "Lease" && e.InvolvedObject.Name == "kube-scheduler" && strings.HasSuffix(e.Message, " became leader")
		})
	})

	first.stop(t)
	second := leader(t, rest...)
	rest[0].deploy(t, "two", 2)
	rest[0].sails(t, "two", 2)
	if after := rest[0].shownAs(t, second.name+"_"); after <= before {
		t.Errorf("the Lease shows %d transitions, before %d", after, before)
	}
	second.wantMetric(t, 1)

	last := without(rest, second)[0]
	second.stop(t)
	leader(t, last)
	last.deploy(t, "three", 2)
	last.sails(t, "three", 2)
	if got := len(last.pods(t, "one")); got != 3 {
		t.Errorf("there are %d pods of one, wanted 3", got)
	}
	s.check(t)
}

func TestALeaderThatStopsGivesItsLeasesBack(t *testing.T) {
	s := newSea(t)
	b := s.launch(t, "oak")
	leader(t, b)
	b.shownAs(t, "oak_")
	b.stop(t)
	for _, name := range mirrored {
		kv, _, err := s.Get(t.Context(), "/registry/leases/kube-system/"+name, 0)
		if err != nil || kv == nil || strings.Contains(string(kv.Value), "oak_") {
			t.Errorf("Lease %s is still held: %v", name, err)
		}
	}
}

// The server is gone without a word, as after kill -9. It comes back later, and waits.
func TestALeaderThatIsCutOffIsReplaced(t *testing.T) {
	s := newSea(t)
	boats := []*boat{s.launch(t, "oak"), s.launch(t, "ash")}
	boats[0].makeNode(t, "n")
	first := leader(t, boats...)
	second := without(boats, first)[0]
	second.deploy(t, "one", 3)
	second.sails(t, "one", 3)
	first.cut.Store(true)
	leader(t, second)
	comes(t, "the components of the first have ended", func() bool { return !first.leads() })
	second.deploy(t, "two", 3)
	second.sails(t, "two", 3)
	first.cut.Store(false)
	second.shownAs(t, second.name+"_")
	second.stop(t)
	leader(t, first)
	first.deploy(t, "three", 3)
	first.sails(t, "three", 3)
	if got := len(first.pods(t, "one")); got != 3 {
		t.Errorf("there are %d pods of one, wanted 3", got)
	}
	s.check(t)
}

// A paused process notices neither its lease nor the other leader, and comes back in the middle of
// its work: here its components go on as long as they like.
func TestALeaderThatWasPausedAndComesBackWritesNothing(t *testing.T) {
	s := newSea(t)
	boats := []*boat{s.launch(t, "oak"), s.launch(t, "ash")}
	boats[0].makeNode(t, "n")
	first := leader(t, boats...)
	second := without(boats, first)[0]
	second.deploy(t, "one", 3)
	second.sails(t, "one", 3)
	first.leadership.mu.Lock()
	old := first.leadership.term
	first.leadership.mu.Unlock()
	first.paused.Store(true)
	comes(t, "the other leads", second.leads)
	for i := range 5 {
		name := fmt.Sprint("app-", i)
		second.deploy(t, name, 3)
		second.sails(t, name, 3)
	}
	// The work queues of the first do not try again: its first refused write has ended its term.
	comes(t, "the components of the first have ended", func() bool { return !first.leads() })
	c := first.fenced(auth.Component("late", auth.GroupMasters), old.Fence)
	if _, err := client.Create(t.Context(), c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the old leader writes: %v", err)
	}
	first.paused.Store(false)
	second.stop(t)
	leader(t, first)
	s.check(t)
}

// Components start again in each term, and leave nothing behind.
func TestComponentsStartAgainAndAgain(t *testing.T) {
	s := newSea(t)
	b := s.launch(t, "oak")
	b.makeNode(t, "n")
	again := func() {
		t.Helper()
		leader(t, b)
		b.leadership.mu.Lock()
		of := b.leadership.term
		b.leadership.mu.Unlock()
		of.Fence.Lost()
		comes(t, "the next term", func() bool {
			b.leadership.mu.Lock()
			defer b.leadership.mu.Unlock()
			return b.leadership.term != nil && b.leadership.term != of
		})
	}
	settled := func(app string) int {
		t.Helper()
		b.deploy(t, app, 2)
		b.sails(t, app, 2)
		lowest := runtime.NumGoroutine()
		for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			lowest = min(lowest, runtime.NumGoroutine())
		}
		return lowest
	}
	again()
	before := settled("one")
	for range 10 {
		again()
	}
	after := settled("two")
	t.Logf("%d goroutines, before %d", after, before)
	if after > before+before/10 {
		t.Errorf("there are %d goroutines after ten terms, before %d", after, before)
	}
	s.check(t)
}
