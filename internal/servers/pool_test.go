package servers

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const one, two, three = "10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443"

var errDown = errors.New("connection refused")

// pool returns a Pool of three living servers and its clock.
func pool(t *testing.T, user string) (*Pool, *time.Time) {
	t.Helper()
	now := day
	p := NewPool(Options{User: user, Now: func() time.Time { return now }})
	if err := p.Learn([]string{one, two, three}); err != nil {
		t.Fatal(err)
	}
	return p, &now
}

func TestNodesSpreadOverServers(t *testing.T) {
	first, second := map[string]int{}, map[string]map[string]int{}
	const nodes = 3000
	for i := range nodes {
		p, _ := pool(t, fmt.Sprintf("node-%d", i))
		order := p.Order()
		first[order[0]]++
		if second[order[0]] == nil {
			second[order[0]] = map[string]int{}
		}
		second[order[0]][order[1]]++
		p.Succeeded(order[0])
		p.Failed(order[0], errDown)
		if next := p.Order(); next[0] != order[1] || next[2] != order[0] {
			t.Fatalf("after a failure of %s: %v, before %v", order[0], next, order)
		}
	}
	for address, n := range first {
		if n < nodes/4 || n > nodes/2 {
			t.Errorf("%s is preferred by %d of %d nodes", address, n, nodes)
		}
		for next, m := range second[address] {
			if m < n/3 {
				t.Errorf("only %d of %d nodes go from %s to %s", m, n, address, next)
			}
		}
	}
}

func TestGivenServersComeAfterLivingOnesAndBeforePastOnes(t *testing.T) {
	p := NewPool(Options{User: "n", Given: []string{"lb.example:6443", two}})
	if got := p.Order(); !slices.Equal(got, []string{"lb.example:6443", two}) {
		t.Errorf("%v", got)
	}
	for _, living := range [][]string{{one}, {three}} {
		if err := p.Learn(living); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.Order(); !slices.Equal(got, []string{three, "lb.example:6443", two, one}) {
		t.Errorf("%v", got)
	}
}

func TestAPoolStartsWithTheStoredList(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	p := NewPool(Options{User: "n", Given: []string{one}, Path: path})
	if err := p.Learn([]string{two, three}); err != nil {
		t.Fatal(err)
	}
	again := NewPool(Options{User: "n", Given: []string{one}, Path: path})
	if got := again.Order(); !slices.Equal(got, p.Order()) || len(got) != 3 {
		t.Errorf("%v, wanted %v", got, p.Order())
	}
}

func TestTheCurrentServerIsKept(t *testing.T) {
	p, now := pool(t, "n")
	order := p.Order()
	p.Succeeded(order[1])
	*now = now.Add(time.Hour)
	if err := p.Learn([]string{order[0], order[2]}); err != nil { // such as while its lease is late
		t.Fatal(err)
	}
	p.Succeeded(order[0]) // an earlier request
	if got := p.Order(); got[0] != order[1] {
		t.Errorf("%v, current was %s", got, order[1])
	}
}

func TestAUserReturnsSlowlyAndLaterAfterEachFailure(t *testing.T) {
	p, now := pool(t, "n")
	best := p.Order()[0]
	p.Succeeded(best)
	if got := p.Better(); got != "" {
		t.Errorf("%s is better than the best", got)
	}
	// waited is how long the server has to be ready until the user returns.
	waited := func() time.Duration {
		t.Helper()
		p.Failed(best, errDown)
		p.Succeeded(p.Order()[0])
		*now = now.Add(20 * time.Second)
		begin := *now
		for range 1000 {
			if got := p.Better(); got != best {
				t.Fatalf("better is %q", got)
			}
			if p.Probed(best, nil, 0) {
				return now.Sub(begin)
			}
			*now = now.Add(10 * time.Second)
		}
		t.Fatal("the user does not return")
		return 0
	}
	first := waited()
	second := waited()
	if first < settle || second < 2*settle {
		t.Errorf("returned after %s and %s", first, second)
	}
	*now = now.Add(forgiven + time.Minute)
	if third := waited(); third != first {
		t.Errorf("after a long time without failures: %s, the first time %s", third, first)
	}
}

func TestAnOutageIsOneFailureAndAFailedProbeBeginsTheWaitAgain(t *testing.T) {
	p, now := pool(t, "n")
	best := p.Order()[0]
	p.Succeeded(best)
	p.Failed(best, errDown)
	p.Succeeded(p.Order()[0])
	for range 100 {
		*now = now.Add(10 * time.Second)
		p.Probed(best, errDown, 0)
	}
	if n := p.states[best].failures; n != 1 {
		t.Errorf("%d failures", n)
	}
	p.Probed(best, nil, 0)
	*now = now.Add(settle - time.Second)
	p.Probed(best, errDown, 0)
	*now = now.Add(2 * time.Second)
	if p.Probed(best, nil, 0) {
		t.Error("the user returns although the server has just failed")
	}
}
