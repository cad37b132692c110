package scheduler

import (
	"reflect"
	"testing"
)

func TestTheNewestStatusOfAPodIsWrittenLast(t *testing.T) {
	var r reports
	if !r.begin("p", map[string]any{"conditions": 1, "nominatedNodeName": "a"}) || !r.writing("p") {
		t.Fatal("the first write does not begin")
	}
	if !r.begin("other", map[string]any{"conditions": 1}) {
		t.Error("another pod waits")
	}
	if r.begin("p", map[string]any{"conditions": 2, "nominatedNodeName": nil}) || r.begin("p", map[string]any{"conditions": 3}) {
		t.Fatal("two writes of a pod at once")
	}
	if got, want := r.after("p"), (map[string]any{"conditions": 3, "nominatedNodeName": nil}); !reflect.DeepEqual(got, want) {
		t.Errorf("then %v, want %v", got, want)
	}
	if r.begin("p", map[string]any{"conditions": 4}) {
		t.Error("a write begins beside the second one")
	}
	if got := r.after("p"); got["conditions"] != 4 {
		t.Errorf("then %v", got)
	}
	if got := r.after("p"); got != nil || r.writing("p") {
		t.Errorf("the writes do not end: %v", got)
	}
}
