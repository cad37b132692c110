package chaos

import (
	"errors"
	"math"
	"testing"

	"github.com/anishathalye/porcupine"
	"k8s.io/apimachinery/pkg/watch"
)

// Each history of several servers is made by hand, and contains at most one fault that the checks
// must find.
func TestTheChecksOfServersTellRightFromWrong(t *testing.T) {
	added := func(revision int64, name, value string) change {
		return change{kind: watch.Added, revision: revision, item: item{name: name, uid: "u", value: value}}
	}
	on := func(server string, to int64, events ...change) *follower {
		return &follower{name: server, spans: []*span{{from: 1, to: to, listed: map[string]mark{}, events: events}}}
	}
	op := func(call, back int64, in input, out output) porcupine.Operation {
		in.name = "a"
		return porcupine.Operation{Input: in, Call: call, Output: out, Return: back}
	}
	is := func(value, version string) output {
		return output{outcome: done, item: item{name: "a", uid: "u", value: value, version: version}}
	}
	made := op(1, 2, input{do: create, value: "1"}, is("1", "3"))
	late := op(3, 4, input{do: patch, value: "2"}, output{outcome: unknown})
	changed := change{kind: watch.Modified, revision: 5, item: item{name: "a", uid: "u", value: "2"}}
	stale := op(20, 21, input{do: get}, is("1", "3"))
	for _, c := range []struct {
		name  string
		h     *history
		plain []*follower
		want  bool
	}{
		{"equal watches of two servers", &history{ops: []porcupine.Operation{made}}, []*follower{on("s1", 9, added(3, "a", "1")), on("s2", 9, added(3, "a", "1"))}, true},
		{"two servers with another change at one revision", &history{ops: []porcupine.Operation{made}}, []*follower{on("s1", 9, added(3, "a", "1")), on("s2", 9, added(3, "b", "1"))}, false},
		{"a server that lost a change", &history{ops: []porcupine.Operation{made}}, []*follower{on("s1", 9, added(3, "a", "1")), on("s2", 9)}, false},
		{"a server that lost an acknowledged write", &history{ops: []porcupine.Operation{made}, acked: []acked{{"a", 3, 2}}}, []*follower{on("s1", 9), on("s2", 9)}, false},
		{"a list of a server that is behind", &history{ops: []porcupine.Operation{made}, acked: []acked{{"a", 3, 2}},
			lists: []listing{{asked: 5, revision: 2, consistent: true, items: map[string]mark{}}}}, []*follower{on("s1", 9, added(3, "a", "1"))}, false},
		{"a write without an answer happens after its server's end", &history{ops: []porcupine.Operation{made, late, op(10, 11, input{do: get}, is("1", "3")), op(20, 21, input{do: get}, is("2", "5"))},
			ends: []end{{5, 6}}}, []*follower{on("s1", 9, added(3, "a", "1"), changed)}, true},
		{"a read of a server that is behind", &history{ops: []porcupine.Operation{made, op(3, 4, input{do: patch, value: "2"}, is("2", "5")), stale}},
			[]*follower{on("s1", 9, added(3, "a", "1"), changed)}, false},
		{"a write that had not begun happens", &history{ops: []porcupine.Operation{made}}, []*follower{on("s1", 9, added(3, "a", "1"), changed)}, false},
		{"a write without an event is read", &history{ops: []porcupine.Operation{made, late, op(10, 11, input{do: get}, is("2", "5"))}},
			[]*follower{on("s1", 9, added(3, "a", "1"))}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.h.several, c.h.last = true, 9
			if err := c.h.check(c.plain, nil); (err == nil) != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}

// A write without an answer is omitted only if the watches saw all changes.
func TestUnknownWritesAreOmittedOnlyByProof(t *testing.T) {
	h := history{several: true, last: 9, ops: []porcupine.Operation{
		{Input: input{do: create, value: "1"}, Output: output{outcome: unknown}},
		{Input: input{do: remove}, Output: output{outcome: unknown}},
	}}
	for to, want := range map[int64]int{9: 1, 8: 2} {
		l := &log{spans: []*span{{from: 1, to: to}}}
		ops := h.settled(l)
		if len(ops) != want || ops[len(ops)-1].Return != math.MaxInt64 {
			t.Errorf("watches up to %d of 9: %d operations, expected %d", to, len(ops), want)
		}
	}
	if got := outcomeOf(&notSent{errors.New("no route")}); got != refused {
		t.Errorf("a request without a connection: %s", got)
	}
}

func TestTheActsOfASecondControllerAreFound(t *testing.T) {
	pod := func(revision int64, kind watch.EventType, name, uid, node string) change {
		return change{kind: kind, revision: revision, item: item{name: name, uid: uid, value: node, status: copies}}
	}
	ended := func(c change) change {
		c.item.deleting = true
		return c
	}
	three := []change{pod(1, watch.Added, "a", "1", ""), pod(2, watch.Added, "b", "2", ""), pod(3, watch.Added, "c", "3", "")}
	bound := []change{pod(1, watch.Added, "a", "1", ""), pod(2, watch.Modified, "a", "1", "n1")}
	for name, c := range map[string]struct {
		changes []change
		more    change
		want    bool
	}{
		"all replicas":                   {three, pod(4, watch.Modified, "a", "1", "n1"), true},
		"one replica too many":           {three, pod(4, watch.Added, "d", "4", ""), false},
		"a replica for a deleted one":    {append(three[:3:3], ended(pod(4, watch.Modified, "a", "1", ""))), pod(5, watch.Added, "d", "4", ""), true},
		"a pod bound once":               {bound, pod(3, watch.Modified, "a", "1", "n1"), true},
		"a pod bound twice":              {bound, pod(3, watch.Modified, "a", "1", "n2"), false},
		"a second pod with the name":     {bound, pod(3, watch.Added, "a", "2", ""), false},
		"a bound pod gone at once":       {bound, pod(3, watch.Deleted, "a", "1", "n1"), false},
		"a bound pod gone by its node":   {append(bound[:2:2], ended(pod(3, watch.Modified, "a", "1", "n1"))), ended(pod(4, watch.Deleted, "a", "1", "n1")), true},
		"an ordinal beyond the replicas": {nil, pod(1, watch.Added, ordinals+"-3", "1", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkPods(append(c.changes[:len(c.changes):len(c.changes)], c.more)); (err == nil) != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}
