package chaos

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Tests of the model itself: a checker that accepts everything would prove nothing.
func TestTheModelTellsRightFromWrong(t *testing.T) {
	op := func(call, back int64, in input, out output) porcupine.Operation {
		in.name = "a"
		return porcupine.Operation{Input: in, Call: call, Output: out, Return: back}
	}
	is := func(value, version string) output {
		return output{outcome: done, item: item{uid: "u", value: value, version: version}}
	}
	waiting := func(value, version string) output {
		return output{outcome: done, item: item{uid: "u", value: value, version: version, deleting: true, held: 1}}
	}
	no := func(o outcome) output { return output{outcome: o} }
	made := op(1, 2, input{do: create, value: "1"}, is("1", "10"))
	held := op(1, 2, input{do: create, value: "1", holds: true, held: 1}, output{outcome: done, item: item{uid: "u", value: "1", version: "10", held: 1}})
	deleted, deleted2 := op(3, 4, input{do: remove}, no(done)), op(5, 6, input{do: remove}, no(done))
	labelled := op(1, 2, input{do: create, value: "1", chosen: true}, output{outcome: done, item: item{uid: "u", value: "1", version: "10", chosen: true}})
	told := func(value, status, version string) output {
		return output{outcome: done, item: item{uid: "u", value: value, status: status, version: version}}
	}
	for _, c := range []struct {
		name string
		ops  []porcupine.Operation
		want bool
	}{
		{"a read sees the write before it", []porcupine.Operation{made, op(3, 4, input{do: get}, is("1", "10"))}, true},
		{"a read misses the write before it", []porcupine.Operation{made, op(3, 4, input{do: get}, no(notFound))}, false},
		{"a read beside the write may miss it", []porcupine.Operation{made, op(1, 4, input{do: get}, no(notFound))}, true},
		{"two creates cannot both succeed", []porcupine.Operation{made, op(3, 4, input{do: create, value: "2"}, is("2", "11"))}, false},
		{"an update on an old version cannot succeed", []porcupine.Operation{made, op(3, 4, input{do: update, value: "2", at: "9"}, is("2", "11"))}, false},
		{"a conflict on the newest version cannot be", []porcupine.Operation{made, op(3, 4, input{do: update, value: "2", at: "10"}, no(conflict))}, false},
		{"a conflict without preconditions is impossible", []porcupine.Operation{made, op(3, 4, input{do: patch, value: "2"}, no(conflict))}, false},
		{"a patch of another UID conflicts", []porcupine.Operation{made, op(3, 4, input{do: patch, value: "2", uid: "v"}, no(conflict))}, true},
		{"a patch of another UID cannot succeed", []porcupine.Operation{made, op(3, 4, input{do: patch, value: "2", uid: "v"}, is("2", "11"))}, false},
		{"a patch that tests the value succeeds once", []porcupine.Operation{made,
			op(3, 4, input{do: patch, value: "2", old: "1"}, is("2", "11")), op(3, 4, input{do: patch, value: "3", old: "1"}, no(invalid))}, true},
		{"a patch that tests the value cannot succeed twice", []porcupine.Operation{made,
			op(3, 4, input{do: patch, value: "2", old: "1"}, is("2", "11")), op(3, 4, input{do: patch, value: "3", old: "1"}, is("3", "12"))}, false},
		{"an apply creates a missing object", []porcupine.Operation{op(3, 4, input{do: apply, value: "2"}, is("2", "11")), op(5, 6, input{do: get}, is("2", "11"))}, true},
		{"a finalizer holds a deletion up", []porcupine.Operation{held, deleted, op(5, 6, input{do: get}, waiting("1", "11"))}, true},
		{"an object with finalizers cannot be gone", []porcupine.Operation{held, deleted, op(5, 6, input{do: get}, no(notFound))}, false},
		{"an object with finalizers cannot lack its deletion timestamp", []porcupine.Operation{held, deleted, op(5, 6, input{do: get}, output{outcome: done, item: held.Output.(output).item})}, false},
		{"the last finalizer's end is the object's", []porcupine.Operation{held, deleted,
			op(5, 6, input{do: patch, value: "2", holds: true}, waiting("2", "12")), op(7, 8, input{do: get}, no(notFound))}, true},
		{"an object that lost its last finalizer cannot stay", []porcupine.Operation{held, deleted,
			op(5, 6, input{do: patch, value: "2", holds: true}, waiting("2", "12")), op(7, 8, input{do: get}, waiting("2", "12"))}, false},
		{"a deletion that has begun takes no new finalizer", []porcupine.Operation{held, deleted,
			op(5, 6, input{do: patch, value: "2", holds: true, held: 3}, no(invalid)), op(7, 8, input{do: get}, waiting("1", "11"))}, true},
		{"a dry run changes nothing", []porcupine.Operation{made,
			op(3, 4, input{do: update, value: "2", dry: true}, no(done)), op(5, 6, input{do: get}, is("1", "10"))}, true},
		{"the value of a dry run cannot be read", []porcupine.Operation{made,
			op(3, 4, input{do: update, value: "2", dry: true}, no(done)), op(5, 6, input{do: get}, is("2", "11"))}, false},
		{"a dry run without an answer has not happened", []porcupine.Operation{made,
			op(3, 1<<62, input{do: remove, dry: true}, no(unknown)), op(5, 6, input{do: get}, no(notFound))}, false},
		{"a dry run, too, fails on an old version", []porcupine.Operation{made, op(3, 4, input{do: update, value: "2", at: "9", dry: true}, no(done))}, false},
		{"a status changes nothing else", []porcupine.Operation{made, op(3, 4, input{do: report, value: "2"}, told("1", "2", "11")), op(5, 6, input{do: get}, told("1", "2", "11"))}, true},
		{"a status cannot change the value", []porcupine.Operation{made, op(3, 4, input{do: report, value: "2"}, is("2", "11"))}, false},
		{"an update cannot drop the status", []porcupine.Operation{made,
			op(3, 4, input{do: report, value: "2"}, told("1", "2", "11")), op(5, 6, input{do: update, value: "3"}, is("3", "12"))}, false},
		{"a recreated object has no status", []porcupine.Operation{made,
			op(3, 4, input{do: report, value: "2"}, told("1", "2", "11")), deleted2, op(7, 8, input{do: create, value: "3"}, told("3", "2", "13"))}, false},
		{"the deletion of all leaves nothing", []porcupine.Operation{made, op(3, 4, input{do: sweep}, no(done)), op(5, 6, input{do: get}, is("1", "10"))}, false},
		{"the deletion of all is well where there is nothing", []porcupine.Operation{op(3, 4, input{do: sweep}, no(done)), op(5, 6, input{do: get}, no(notFound))}, true},
		{"a deletion by label leaves objects without the label", []porcupine.Operation{made, op(3, 4, input{do: sweep, only: true}, no(done)), op(5, 6, input{do: get}, is("1", "10"))}, true},
		{"a deletion by label deletes objects with the label", []porcupine.Operation{labelled,
			op(3, 4, input{do: sweep, only: true}, no(done)), op(5, 6, input{do: get}, output{outcome: done, item: labelled.Output.(output).item})}, false},
		{"a label cannot be lost", []porcupine.Operation{labelled, op(3, 4, input{do: get}, is("1", "10"))}, false},
		{"the deletion of all waits for finalizers", []porcupine.Operation{held, op(3, 4, input{do: sweep}, no(done)), op(5, 6, input{do: get}, waiting("1", "11"))}, true},
		{"a write without an answer may have happened", []porcupine.Operation{made,
			op(3, 1<<62, input{do: update, value: "2"}, no(unknown)), op(5, 6, input{do: get}, is("2", "12"))}, true},
		{"a write without an answer cannot be undone", []porcupine.Operation{made,
			op(3, 1<<62, input{do: update, value: "2"}, no(unknown)), op(5, 6, input{do: get}, is("2", "12")), op(7, 8, input{do: get}, is("1", "10"))}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(register, c.ops); got != c.want {
				t.Errorf("linearizable: %v, expected %v", got, c.want)
			}
		})
	}
}

// Each history is made by hand and contains one fault that the checks must find.
func TestTheChecksTellRightFromWrong(t *testing.T) {
	added := func(revision int64, name string) change {
		return change{kind: "ADDED", revision: revision, item: item{name: name, value: "1"}}
	}
	full := func() *follower {
		return &follower{name: "full", spans: []*span{{from: 1, to: 9, listed: map[string]mark{}, events: []change{added(3, "a"), added(5, "b"), added(7, "c")}}}}
	}
	resumed := func(from, to int64, events ...change) *follower {
		return &follower{name: "resumed", spans: []*span{{from: from, to: to, events: events}}}
	}
	for _, c := range []struct {
		name  string
		h     *history
		plain []*follower
		want  bool
	}{
		{"a watch resumed in the middle", &history{}, []*follower{full(), resumed(3, 7, added(5, "b"), added(7, "c"))}, true},
		{"an event is missing in a resumed watch", &history{}, []*follower{full(), resumed(3, 7, added(7, "c"))}, false},
		{"an event is delivered twice", &history{}, []*follower{full(), resumed(3, 7, added(5, "b"), added(5, "b"), added(7, "c"))}, false},
		{"an exact list", &history{lists: []listing{{wanted: 5, exact: true, revision: 5, items: map[string]mark{"a": {version: 3}, "b": {version: 5}}}}}, []*follower{full()}, true},
		{"an exact list of another revision", &history{lists: []listing{{wanted: 4, exact: true, revision: 5, items: map[string]mark{"a": {version: 3}, "b": {version: 5}}}}}, []*follower{full()}, false},
		{"an exact list with a later object", &history{lists: []listing{{wanted: 4, exact: true, revision: 4, items: map[string]mark{"a": {version: 3}, "b": {version: 5}}}}}, []*follower{full()}, false},
		{"a list that is older than was demanded", &history{lists: []listing{{wanted: 5, revision: 4, items: map[string]mark{"a": {version: 3}}}}}, []*follower{full()}, false},
		{"the rest of a list", &history{lists: []listing{{revision: 7, after: "a", items: map[string]mark{"b": {version: 5}, "c": {version: 7}}}}}, []*follower{full()}, true},
		{"the rest of a list that lacks one", &history{lists: []listing{{revision: 7, after: "a", items: map[string]mark{"c": {version: 7}}}}}, []*follower{full()}, false},
		{"the first page of a list", &history{lists: []listing{{revision: 7, upTo: "b", items: map[string]mark{"a": {version: 3}, "b": {version: 5}}}}}, []*follower{full()}, true},
		{"a list by label", &history{lists: []listing{{revision: 7, selecting: true, items: map[string]mark{}}}}, []*follower{full()}, true},
		{"a list by label with an object without the label", &history{lists: []listing{{revision: 7, selecting: true, items: map[string]mark{"a": {version: 3}}}}}, []*follower{full()}, false},
		{"an event without a write", &history{}, []*follower{{spans: []*span{{from: 1, to: 3, events: []change{{kind: "ADDED", revision: 3, item: item{name: "a", value: "2"}}}}}}}, false},
		{"an event of a dry run", &history{ops: []porcupine.Operation{{Input: input{do: create, name: "x", value: "2", dry: true}, Output: output{outcome: done}}}},
			[]*follower{{spans: []*span{{from: 1, to: 3, events: []change{{kind: "ADDED", revision: 3, item: item{name: "a", value: "2"}}}}}}}, false},
		{"a read that is older than was demanded", &history{reads: []read{{wanted: 9, name: "a", version: 2}}}, []*follower{full()}, false},
		{"a read of the newest version at that time", &history{reads: []read{{wanted: 9, name: "a", version: 3}}}, []*follower{full()}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The operations behind the events.
			c.h.ops = append(c.h.ops, porcupine.Operation{Input: input{do: create, name: "x", value: "1"}, Output: output{outcome: unknown}})
			if err := c.h.check(c.plain, nil); (err == nil) != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}

// An answer that a healthy server never gives must be found. The answers of a server that ends,
// starts or is busy are allowed.
func TestUnexpectedAnswersAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		ending bool // requested while the server ended
		odd    bool
	}{
		"no answer":                   {err: io.ErrUnexpectedEOF},
		"an expected code":            {err: apierrors.NewNotFound(widgets, "x")},
		"busy":                        {err: apierrors.NewTooManyRequests("", 1)},
		"not ready":                   {err: apierrors.NewServiceUnavailable("")},
		"too slow":                    {err: apierrors.NewTimeoutError("", 1)},
		"bad request":                 {err: apierrors.NewBadRequest(""), odd: true},
		"bad request, at the end":     {err: apierrors.NewBadRequest(""), ending: true, odd: true},
		"forbidden":                   {err: apierrors.NewForbidden(widgets, "x", nil), odd: true},
		"no such method":              {err: apierrors.NewMethodNotSupported(widgets, "x"), odd: true},
		"internal error":              {err: apierrors.NewInternalError(io.EOF), odd: true},
		"internal error, at the end":  {err: apierrors.NewInternalError(io.EOF), ending: true},
		"a code of another operation": {err: apierrors.NewResourceExpired(""), odd: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{began: time.Now()}
			asked := h.now()
			if c.ending {
				h.ended(time.Now())
			}
			h.expect(asked, c.err, "a request", http.StatusNotFound)
			if err := h.checkAnswers(); (err != nil) != c.odd {
				t.Errorf("%v was found: %v", c.err, err)
			}
		})
	}
}

func TestMissingFeaturesOfHistoriesAreReported(t *testing.T) {
	c := counts{operations: 1, sweeps: 1, dry: 1, selecting: 1, exact: 1, pages: 1, compared: 1, resumed: 1, initial: 1, events: 1}
	if what := c.missing(); what != "" {
		t.Errorf("%s is reported as missing", what)
	}
	if c.events = 0; c.missing() != "event" {
		t.Errorf("no events: %q", c.missing())
	}
	unopened := &follower{begins: resumed, spans: []*span{{}}}
	h := &history{ops: []porcupine.Operation{{Input: input{do: create, name: "x"}, Output: output{outcome: unknown}}}}
	if err := h.check([]*follower{unopened}, nil); err != nil || h.counts != (counts{}) {
		t.Errorf("a watch that never opened and a write without an answer count: %v, %v", &h.counts, err)
	}
}
