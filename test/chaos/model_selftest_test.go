package chaos

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// The model itself: a checker that accepts everything would prove nothing.
func TestTheModelTellsRightFromWrong(t *testing.T) {
	op := func(call, back int64, in input, out output) porcupine.Operation {
		in.name = "a"
		return porcupine.Operation{Input: in, Call: call, Output: out, Return: back}
	}
	made := op(1, 2, input{do: create, value: "1"}, output{outcome: done, version: "10"})
	for _, c := range []struct {
		name string
		ops  []porcupine.Operation
		want bool
	}{
		{"a read sees the write before it", []porcupine.Operation{made, op(3, 4, input{do: get}, output{outcome: done, value: "1", version: "10"})}, true},
		{"a read misses the write before it", []porcupine.Operation{made, op(3, 4, input{do: get}, output{outcome: notFound})}, false},
		{"a read beside the write may miss it", []porcupine.Operation{made, op(1, 4, input{do: get}, output{outcome: notFound})}, true},
		{"two creates cannot both succeed", []porcupine.Operation{made, op(3, 4, input{do: create, value: "2"}, output{outcome: done, version: "11"})}, false},
		{"an update on an old version cannot succeed", []porcupine.Operation{made, op(3, 4, input{do: update, value: "2", at: "9"}, output{outcome: done, version: "11"})}, false},
		{"a conflict on the newest version cannot be", []porcupine.Operation{made, op(3, 4, input{do: update, value: "2", at: "10"}, output{outcome: conflict})}, false},
		{"a write without an answer may have happened", []porcupine.Operation{made,
			op(3, 1<<62, input{do: update, value: "2"}, output{outcome: unknown}),
			op(5, 6, input{do: get}, output{outcome: done, value: "2", version: "12"})}, true},
		{"a write without an answer cannot be undone", []porcupine.Operation{made,
			op(3, 1<<62, input{do: update, value: "2"}, output{outcome: unknown}),
			op(5, 6, input{do: get}, output{outcome: done, value: "2", version: "12"}),
			op(7, 8, input{do: get}, output{outcome: done, value: "1", version: "10"})}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(register, c.ops); got != c.want {
				t.Errorf("linearizable: %v, expected %v", got, c.want)
			}
		})
	}
}
