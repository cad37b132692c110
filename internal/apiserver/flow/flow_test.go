package flow

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/knarr-project/knarr/internal/auth"
)

func limited(name string, shares int32, queuing *flowcontrolv1.QueuingConfiguration) *flowcontrolv1.PriorityLevelConfiguration {
	response := flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
	if queuing != nil {
		response = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: queuing}
	}
	return &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LimitResponse: response},
	}}
}

func forAll(name, level string, precedence int32, subject flowcontrolv1.Subject) *flowcontrolv1.FlowSchema {
	all := []string{"*"}
	return &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level}, MatchingPrecedence: precedence,
		DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{Subjects: []flowcontrolv1.Subject{subject},
			ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}}}},
	}}
}

func group(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: name}}
}

var queues = &flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 6, QueueLengthLimit: 50}

func noDetails() (Request, string, string) { return Request{}, "", "" }

func TestSharesGiveUpstreamsNumberOfSeats(t *testing.T) {
	lend := func(l *flowcontrolv1.PriorityLevelConfiguration, percent int32) *flowcontrolv1.PriorityLevelConfiguration {
		l.Spec.Limited.LendablePercent = &percent
		return l
	}
	got := shapes([]*flowcontrolv1.PriorityLevelConfiguration{
		limited("catch-all", 5, nil), lend(limited("system", 30, queues), 33), lend(limited("node-high", 40, queues), 25), limited("leader-election", 10, queues),
		lend(limited("workload-high", 40, queues), 50), lend(limited("workload-low", 100, queues), 90), lend(limited("global-default", 20, queues), 50),
	}, 600)
	for name, want := range map[string][3]int{
		"catch-all": {13, 13, 613}, "system": {74, 50, 674}, "node-high": {98, 73, 698}, "leader-election": {25, 25, 625},
		"workload-high": {98, 49, 698}, "workload-low": {245, 24, 845}, "global-default": {49, 24, 649},
	} {
		if s := got[name]; [3]int{s.nominal, s.lower, s.upper} != want {
			t.Errorf("%s: %+v, want %v", name, s, want)
		}
	}
}

func TestHandHasDifferentQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "queues")
		size := rapid.IntRange(1, min(n, maxHand)).Draw(t, "hand")
		seen := map[int]bool{}
		hand := deal(rapid.Uint64().Draw(t, "hash"), n, size)
		for _, card := range hand[:size] {
			if card < 0 || card >= n || seen[card] {
				t.Fatalf("%v of %d queues", hand[:size], n)
			}
			seen[card] = true
		}
	})
}

func TestEveryAllowedHandSizeCanBeDealt(t *testing.T) {
	for size := 1; size <= 64; size++ { // the fewest queues allow the largest hands
		if bits := math.Ceil(math.Log2(float64(size)) * float64(size)); bits <= 60 && size > maxHand {
			t.Errorf("a hand of %d takes %v bits of the hash, and is too large", size, bits)
		}
	}
}

func TestFloodDoesNotDelayOtherFlows(t *testing.T) {
	l := &level{}
	l.configure("", levelShape{queues: 64, handSize: 6, queueLength: 50, nominal: 4, lower: 4, upper: 4})
	now := time.Unix(0, 0)
	flood := &schema{name: "flood"}
	other := &schema{name: "other"}
	var served []seats
	for range 200 {
		if outcome, got, _, _ := l.enter(1, flood.flowOf(&Request{}), now, noDetails); outcome == Served {
			served = append(served, got)
		}
	}
	if len(served) != 4 {
		t.Fatalf("%d served at once", len(served))
	}
	outcome, _, w, _ := l.enter(1, other.flowOf(&Request{}), now, noDetails)
	if outcome != Waiting {
		t.Fatalf("outcome %v", outcome)
	}
	for i := 0; !w.done; i++ {
		if i == 30 {
			t.Fatal("thirty of the flood's were served before it")
		}
		l.exit(seats{width: 1, queue: noQueue}, time.Second)
	}
}

func TestQueuesShareSeatsByUsedTime(t *testing.T) {
	l := &level{}
	l.configure("", levelShape{queues: 2, handSize: 1, queueLength: 1000, nominal: 1, lower: 1, upper: 1})
	now := time.Unix(0, 0)
	_, first, _, _ := l.enter(1, 0, now, noDetails)
	// A request in queue 0 needs three seats, which are the whole level; one in queue 1 needs one.
	for range 100 {
		l.enter(3, 0, now, noDetails)
		l.enter(1, 1, now, noDetails)
	}
	l.exit(first, time.Second)
	done := [2]int{}
	for range 80 {
		for i := range l.queues {
			if q := &l.queues[i]; q.executing > 0 {
				done[i]++
				l.exit(seats{width: q.executing, queue: i, expected: l.expected()}, time.Second)
				break
			}
		}
	}
	if done[1] < 2*done[0] || done[1] > 4*done[0] {
		t.Errorf("served %v, want about one to three", done)
	}
}

func TestFullLevelsAndQueuesRefuseRequests(t *testing.T) {
	now := time.Unix(0, 0)
	reject := &level{}
	reject.configure("", levelShape{nominal: 1, lower: 1, upper: 1})
	reject.enter(1, 0, now, noDetails)
	if outcome, _, _, reason := reject.enter(1, 0, now, noDetails); outcome != Refused || reason != reasonConcurrency {
		t.Errorf("%v %s", outcome, reason)
	}
	short := &level{}
	short.configure("", levelShape{queues: 1, handSize: 1, queueLength: 1, nominal: 1, lower: 1, upper: 1})
	short.enter(1, 0, now, noDetails)
	_, _, w, _ := short.enter(1, 0, now, noDetails)
	if outcome, _, _, reason := short.enter(1, 0, now, noDetails); outcome != Refused || reason != reasonQueueFull {
		t.Errorf("%v %s", outcome, reason)
	}
	if !short.withdraw(w, reasonTimeout) || short.waiting != 0 || short.waitSeats != 0 || short.counts.timedOut != 1 {
		t.Errorf("after it has withdrawn: %+v", short)
	}
	exempt := &level{}
	exempt.configure("", levelShape{exempt: true})
	if outcome, _, _, _ := exempt.enter(1, 0, now, noDetails); outcome != Served {
		t.Error("an exempt request has to wait")
	}
}

func TestRequestWiderThanTheLevelRunsAlone(t *testing.T) {
	l := &level{}
	l.configure("", levelShape{queues: 1, handSize: 1, queueLength: 9, nominal: 2, lower: 2, upper: 2})
	now := time.Unix(0, 0)
	_, first, _, _ := l.enter(1, 0, now, noDetails)
	_, _, wide, _ := l.enter(10, 0, now, noDetails)
	_, _, narrow, _ := l.enter(1, 0, now, noDetails)
	if wide.done || narrow.done {
		t.Fatal("the narrow one must not pass the wide one for ever")
	}
	l.exit(first, time.Second)
	if !wide.done || narrow.done {
		t.Errorf("wide %v, narrow %v", wide.done, narrow.done)
	}
}

func TestIdleLevelsLendSeatsToBusyOnes(t *testing.T) {
	idle := levelDemand{shape: levelShape{nominal: 300, lower: 30, upper: 900}}
	busy := levelDemand{shape: levelShape{nominal: 300, lower: 200, upper: 900}, highest: 1000, smoothed: 1000}
	got := divide([]levelDemand{idle, busy, {shape: levelShape{exempt: true}}}, 600)
	if got[0] < 30 || got[0] > 40 || got[1] < 540 || got[0]+got[1] > 602 || got[2] != 1 {
		t.Errorf("got %v", got)
	}
	idle.highest, idle.smoothed = 300, 300 // it claims its seats back
	if got = divide([]levelDemand{idle, busy}, 600); got[0] != 300 || got[1] != 300 {
		t.Errorf("got %v", got)
	}
}

func newGate(patience time.Duration, seats int) *Gate {
	g := New(Config{Seats: seats, MaxWait: patience})
	g.Configure([]*flowcontrolv1.FlowSchema{forAll("catch-all", "catch-all", 10000, group("system:authenticated")), forAll("dev", "work", 10, group("dev")), forAll("lost", "none", 1, group("dev"))},
		[]*flowcontrolv1.PriorityLevelConfiguration{limited("catch-all", 1, nil), limited("work", 1, queues)})
	return g
}

func one(int) int { return 1 }

func TestRequestsAreClassifiedAndWait(t *testing.T) {
	g := newGate(time.Minute, 2)
	dev := &Request{User: auth.User{Name: "alice", Groups: []string{"dev", "system:authenticated"}}, Verb: "get", Resource: "pods", Namespace: "a"}
	first, err := g.Enter(t.Context(), dev, one)
	if err != nil || first.SchemaUID() != "dev" || first.LevelUID() != "work" {
		t.Fatalf("%+v %v", first, err)
	}
	entered := make(chan Ticket)
	go func() {
		next, err := g.Enter(t.Context(), dev, one)
		if err != nil {
			t.Error(err)
		}
		entered <- next
	}()
	var page strings.Builder
	for !strings.Contains(page.String(), "alice") {
		page.Reset()
		if _, err := g.Show(&page, "dump_requests", false); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"dump_requests":        "PriorityLevelName, FlowSchemaName, QueueIndex, RequestIndexInQueue, FlowDistingsher, ArriveTime,",
		"dump_queues":          "NextDispatchR, InitialSeatsSum, MaxSeatsSum, TotalWorkSum\n",
		"dump_priority_levels": "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests\n",
	} {
		var page strings.Builder
		if found, err := g.Show(&page, name, true); err != nil || !found || !strings.Contains(page.String(), want) {
			t.Errorf("%s, %v: %s", name, err, page.String())
		}
	}
	first.Done()
	first.Done() // the second call has no effect
	next := <-entered
	next.Done()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	busy, _ := g.Enter(t.Context(), dev, one)
	if _, err := g.Enter(ctx, dev, one); err != ErrTooMany {
		t.Errorf("a client that has gone got %v", err)
	}
	busy.Done()
	if l := g.levels["work"]; l.inUse != 0 || l.executing != 0 || l.waiting != 0 {
		t.Errorf("after all: %+v", l)
	}
}

func TestWaitingRequestTimesOut(t *testing.T) {
	g := newGate(time.Millisecond, 2)
	dev := &Request{User: auth.User{Groups: []string{"dev"}}, Verb: "get", Path: "/x"}
	if _, err := g.Enter(t.Context(), dev, one); err != nil {
		t.Fatal(err)
	}
	if ticket, err := g.Enter(t.Context(), dev, one); err != ErrTooMany || ticket.SchemaUID() != "dev" {
		t.Errorf("%v", err)
	}
}

func TestSeatsAreNeverLost(t *testing.T) {
	g := newGate(20*time.Millisecond, 8)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			r := &Request{User: auth.User{Name: fmt.Sprint(i % 5), Groups: []string{"dev"}}, Verb: "list", Resource: "pods"}
			for n := range 50 {
				ticket, err := g.Enter(t.Context(), r, func(most int) int { return 1 + n%most })
				if err == nil {
					ticket.Done()
				}
				if n%20 == 0 {
					g.adjust()
					g.Configure([]*flowcontrolv1.FlowSchema{forAll("dev", "work", 10, group("dev"))}, []*flowcontrolv1.PriorityLevelConfiguration{limited("work", 1, queues)})
				}
			}
		})
	}
	all.Wait()
	if l := g.levels["work"]; l.inUse != 0 || l.executing != 0 || l.waiting != 0 || l.waitSeats != 0 {
		t.Errorf("%d seats, %d executing, %d waiting", l.inUse, l.executing, l.waiting)
	}
}

func TestRulesMatchPathsAndScopes(t *testing.T) {
	rule := &flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{{ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "a", Name: "*"}}},
		ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes/status", "pods"}, ClusterScope: true, Namespaces: []string{"a"}}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"/healthz", "/apis/*"}}}}
	user := auth.User{Name: "system:serviceaccount:a:b"}
	for name, tc := range map[string]struct {
		r    Request
		want bool
	}{
		"a cluster-scoped subresource":    {Request{User: user, Verb: "get", Resource: "nodes", Subresource: "status"}, true},
		"the resource without it":         {Request{User: user, Verb: "get", Resource: "nodes"}, false},
		"a namespace that is meant":       {Request{User: user, Verb: "get", Resource: "pods", Namespace: "a"}, true},
		"another namespace":               {Request{User: user, Verb: "get", Resource: "pods", Namespace: "b"}, false},
		"another verb":                    {Request{User: user, Verb: "list", Resource: "pods", Namespace: "a"}, false},
		"a path":                          {Request{User: user, Verb: "get", Path: "/healthz"}, true},
		"a path below another":            {Request{User: user, Verb: "get", Path: "/healthz/etcd"}, false},
		"a path below a pattern":          {Request{User: user, Verb: "get", Path: "/apis/apps/v1"}, true},
		"somebody else":                   {Request{User: auth.User{Name: "x"}, Verb: "get", Path: "/healthz"}, false},
		"an account of another namespace": {Request{User: auth.User{Name: "system:serviceaccount:b:b"}, Verb: "get", Path: "/healthz"}, false},
	} {
		if got := matches(rule, &tc.r); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestUncontendedRequestAllocatesNothing(t *testing.T) {
	g := newGate(time.Minute, 600)
	dev := &Request{User: auth.User{Name: "alice", Groups: []string{"dev"}}, Verb: "get", Resource: "pods", Namespace: "a"}
	ctx := t.Context()
	least := math.Inf(1) // goroutines of other tests may allocate, too
	for range 10 {
		least = min(least, testing.AllocsPerRun(100, func() {
			ticket, _ := g.Enter(ctx, dev, one)
			ticket.Done()
		}))
	}
	if least > 0 {
		t.Errorf("%v allocations a request", least)
	}
}

func BenchmarkEnter(b *testing.B) {
	g := newGate(time.Minute, 600)
	dev := &Request{User: auth.User{Name: "alice", Groups: []string{"dev"}}, Verb: "get", Resource: "pods", Namespace: "a"}
	for b.Loop() {
		ticket, _ := g.Enter(context.Background(), dev, one)
		ticket.Done()
	}
}
