package chaos

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// What one operation on one object asks for and gets. Values are unique, so that a value tells which write it is from.

type action string

const (
	get    action = "get"
	create action = "create"
	update action = "update"
	patch  action = "patch" // merge, JSON with a test, or apply: see input
	apply  action = "apply" // makes the object when it is not there
	remove action = "delete"
	sweep  action = "delete collection" // as far as it concerns one name
	report action = "status"            // writes the status, and nothing else
)

type input struct {
	do    action
	name  string
	value string // written by all writes but delete; of report it is the status
	// What the write demands of the object; "" for nothing.
	at  string // resourceVersion
	uid string
	old string // value
	// The finalizers that the write leaves, if it says so.
	holds bool
	held  holds
	// chosen: a create or update leaves the label.
	chosen bool
	// only: a sweep is of what has the label.
	only bool
	// dry: nothing is to happen.
	dry bool
}

type outcome string

const (
	done     outcome = "done"
	unknown  outcome = "unknown" // no answer: it may have happened, or happen later
	refused  outcome = "refused" // never sent
	notFound outcome = "not found"
	exists   outcome = "already exists"
	conflict outcome = "conflict"
	invalid  outcome = "invalid"
)

// output is the outcome and, when it is done, the object as it was read or written; a deletion tells nothing.
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
	version  string // "" when nobody was told it
	uid      string // "" when nobody was told it
	deleting bool
	held     holds
}

// register is the model of one object: a register with a version that exists or not, and whose deletion waits for its finalizers.
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

// step gives the states that may follow; none when the answer is impossible.
func step(s object, in input, out output) []object {
	if out.outcome == unknown {
		states := []object{s}
		if may, _ := s.allows(in); may {
			states = append(states, s.after(in))
		}
		return states
	}
	may, mayNot := s.allows(in)
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
		// An update that names a UID conflicts with there being no object, as upstream.
		if s.exists && mayNot && (in.at != "" || in.uid != "") || !s.exists && in.do == update && in.uid != "" {
			return same
		}
	case invalid:
		if s.exists && (mayNot && in.old != "" || mayNot && in.uid != "" && in.do == patch || s.adds(in)) {
			return same
		}
	case done:
		if !may {
			return nil
		}
		if in.dry {
			return same
		}
		next, ok := s.after(in).told(in, out.item)
		switch {
		case !ok:
			return nil
		case in.do == sweep && in.only && !s.chosen: // it may have had the label when the sweep looked, or not
			return []object{s, next}
		}
		return []object{next}
	}
	return nil
}

// allows says whether the write (or read) may succeed and whether it may fail: both, while nobody knows the version or UID that it demands.
func (s object) allows(in input) (may, mayNot bool) {
	switch {
	case in.do == create:
		return !s.exists, s.exists
	case in.do == apply, in.do == sweep:
		return true, false
	case !s.exists:
		return false, true
	case in.old != "" && in.old != s.value, s.adds(in):
		return false, true
	}
	may = true
	for _, demand := range []struct{ wanted, is string }{{in.at, s.version}, {in.uid, s.uid}} {
		if demand.wanted == "" {
			continue
		}
		may = may && (demand.is == "" || demand.is == demand.wanted)
		mayNot = mayNot || demand.is != demand.wanted
	}
	return may, mayNot
}

// adds: the write would hold up a deletion that has begun.
func (s object) adds(in input) bool {
	return s.deleting && in.holds && in.held&^s.held != 0
}

// after is the state after an operation that succeeds. Its version is not known yet if it was written.
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

// told is the state with what the answer says of it; false when that can not be.
func (s object) told(in input, is item) (object, bool) {
	if !s.exists || in.do == remove || in.do == sweep {
		return s, in.do != get // what goes by the write is told as it was
	}
	if s.value != is.value || s.status != is.status || s.chosen != is.chosen || s.deleting != is.deleting || s.held != is.held ||
		s.version != "" && s.version != is.version || s.uid != "" && s.uid != is.uid {
		return s, false
	}
	s.version, s.uid = is.version, is.uid
	return s, true
}
