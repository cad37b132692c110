package chaos

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// The request and the result of one operation on one object. Values are unique, so a value
// identifies its write.

type action string

const (
	get    action = "get"
	create action = "create"
	update action = "update"
	patch  action = "patch" // merge, JSON with a test, or apply: see input
	apply  action = "apply" // creates the object if it does not exist
	remove action = "delete"
	sweep  action = "delete collection" // its effect on one name
	report action = "status"            // writes only the status
)

type input struct {
	do    action
	name  string
	value string // set by every write except delete; for report, the status
	// Preconditions of the write; "" means none.
	at  string // resourceVersion
	uid string
	old string // value
	// The finalizers that the write sets, if holds.
	holds bool
	held  holds
	// chosen means that a create or update sets the label.
	chosen bool
	// only restricts a sweep to objects with the label.
	only bool
	// dry marks a dry run.
	dry bool
}

type outcome string

const (
	done     outcome = "done"
	unknown  outcome = "unknown" // no answer: it may have happened, or may happen later
	refused  outcome = "refused" // never sent, or not begun
	notFound outcome = "not found"
	exists   outcome = "already exists"
	conflict outcome = "conflict"
	invalid  outcome = "invalid"
)

// output is the outcome and, if it is done, the object that was read or written. A deletion returns
// no object.
type output struct {
	outcome outcome
	item    item
}

// object is the state of one name.
type object struct {
	exists   bool
	value    string
	status   string
	chosen   bool
	version  string // "" if no client has seen it
	uid      string // "" if no client has seen it
	deleting bool
	held     holds
}

// register is the model of one object. It is a register with a version that exists or not, and
// whose deletion waits for its finalizers.
var register = (&porcupine.NondeterministicModel{
	Partition: byName,
	Init:      func() []any { return []any{object{}} },
	Step: func(state, in, out any) []any {
		var next []any
		for _, s := range step(state.(object), in.(input), out.(output)) {
			next = append(next, s)
		}
		return next
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v → %v", in, out) },
}).ToModel()

func byName(history []porcupine.Operation) [][]porcupine.Operation {
	names := map[string]int{}
	var parts [][]porcupine.Operation
	for _, op := range history {
		name := op.Input.(input).name
		i, ok := names[name]
		if !ok {
			i = len(parts)
			names[name] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// step returns the possible next states; none if the answer is impossible.
func step(s object, in input, out output) []object {
	if out.outcome == unknown {
		states := []object{s}
		if maySucceed, _ := s.allows(in); maySucceed {
			states = append(states, s.after(in))
		}
		return states
	}
	maySucceed, mayFail := s.allows(in)
	same := []object{s}
	switch out.outcome {
	case notFound:
		if !s.exists && in.do != create && in.do != apply && in.do != sweep {
			return same
		}
	case exists:
		if s.exists && in.do == create {
			return same
		}
	case conflict:
		// An update with a UID conflicts if there is no object, as upstream.
		if s.exists && mayFail && (in.at != "" || in.uid != "") || !s.exists && in.do == update && in.uid != "" {
			return same
		}
	case invalid:
		if s.exists && (mayFail && in.old != "" || mayFail && in.uid != "" && in.do == patch || s.addsFinalizer(in)) {
			return same
		}
	case done:
		if !maySucceed {
			return nil
		}
		if in.dry {
			return same
		}
		next, ok := s.after(in).withAnswer(in, out.item)
		switch {
		case !ok:
			return nil
		case in.do == sweep && in.only && !s.chosen: // the sweep may or may not have seen the label
			return []object{s, next}
		}
		return []object{next}
	}
	return nil
}

// allows reports whether the operation may succeed and whether it may fail. Both are possible while
// the demanded version or UID is unknown.
func (s object) allows(in input) (maySucceed, mayFail bool) {
	switch {
	case in.do == create:
		return !s.exists, s.exists
	case in.do == apply, in.do == sweep:
		return true, false
	case !s.exists:
		return false, true
	case in.old != "" && in.old != s.value, s.addsFinalizer(in):
		return false, true
	}
	maySucceed = true
	for _, demand := range []struct{ wanted, is string }{{in.at, s.version}, {in.uid, s.uid}} {
		if demand.wanted == "" {
			continue
		}
		maySucceed = maySucceed && (demand.is == "" || demand.is == demand.wanted)
		mayFail = mayFail || demand.is != demand.wanted
	}
	return maySucceed, mayFail
}

// addsFinalizer reports whether the write would add a finalizer to an object that is being deleted.
func (s object) addsFinalizer(in input) bool {
	return s.deleting && in.holds && in.held&^s.held != 0
}

// after returns the state after a successful operation. The version of a write is not known yet.
func (s object) after(in input) object {
	if in.dry {
		return s
	}
	switch in.do {
	case get:
		return s
	case report:
		s.status, s.version = in.value, ""
		return s
	case remove, sweep:
		switch {
		case s.held == 0:
			return object{}
		case !s.deleting:
			s.deleting, s.version = true, ""
		}
		return s
	}
	if !s.exists {
		s = object{exists: true}
	}
	if in.holds {
		if s.held = in.held; s.deleting && s.held == 0 {
			return object{}
		}
	}
	if in.do == create || in.do == update {
		s.chosen = in.chosen
	}
	s.value, s.version = in.value, ""
	return s
}

// withAnswer adds the answer's content to the state; false if they contradict each other.
func (s object) withAnswer(in input, is item) (object, bool) {
	if !s.exists || in.do == remove || in.do == sweep {
		return s, in.do != get // a deleting write returns the last state
	}
	if s.value != is.value || s.status != is.status || s.chosen != is.chosen || s.deleting != is.deleting || s.held != is.held ||
		s.version != "" && s.version != is.version || s.uid != "" && s.uid != is.uid {
		return s, false
	}
	s.version, s.uid = is.version, is.uid
	return s, true
}
