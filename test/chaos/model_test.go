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
	remove action = "delete"
)

type input struct {
	do    action
	name  string
	value string // written by create and update
	at    string // resourceVersion that update and delete demand; "" for none
}

type outcome string

const (
	done     outcome = "done"
	unknown  outcome = "unknown" // no answer: it may have happened, or happen later
	refused  outcome = "refused" // never sent
	notFound outcome = "not found"
	exists   outcome = "already exists"
	conflict outcome = "conflict"
)

type output struct {
	outcome outcome
	value   string // read by get
	version string // the object's resourceVersion after get, create and update
}

// object is the state of one name.
type object struct {
	exists  bool
	value   string
	version string // "" when nobody was told it
}

// register is the model of one object: a register with a version, that exists or not.
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
		if mayApply(s, in) {
			states = append(states, apply(in, ""))
		}
		return states
	}
	switch {
	case out.outcome == notFound && in.do != create && !s.exists:
		return []object{s}
	case out.outcome == exists && in.do == create && s.exists:
		return []object{s}
	case out.outcome == conflict && in.at != "" && s.exists && (s.version == "" || s.version != in.at):
		return []object{s}
	case out.outcome == done && in.do == get && s.exists && s.value == out.value && (s.version == "" || s.version == out.version):
		return []object{{exists: true, value: s.value, version: out.version}}
	case out.outcome == done && in.do != get && mayApply(s, in):
		return []object{apply(in, out.version)}
	}
	return nil
}

func mayApply(s object, in input) bool {
	switch in.do {
	case create:
		return !s.exists
	case update, remove:
		return s.exists && (in.at == "" || s.version == "" || s.version == in.at)
	}
	return false
}

func apply(in input, version string) object {
	if in.do == remove {
		return object{}
	}
	return object{exists: true, value: in.value, version: version}
}
