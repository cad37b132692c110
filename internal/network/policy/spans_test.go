package policy

import (
	"slices"
	"testing"

	"github.com/knarr-project/knarr/internal/insight/spans"
)

func TestSpansAreOfChangesWhoseRulesAreInTheKernel(t *testing.T) {
	ring := &spans.Ring{}
	a, err := New(Config{NodeName: "here", Spans: ring})
	if err != nil {
		t.Fatal(err)
	}
	kept := func() (list []int64) {
		found, _ := ring.Select(nil, []string{"shop/lock", "shop/far", "/peers-0"})
		for _, s := range found {
			if s.Name != spans.Rules || s.End.Before(s.Begin) {
				t.Errorf("%+v", s)
			}
			list = append(list, s.Revisions...)
		}
		slices.Sort(list)
		return list
	}
	a.due.add("shop", "lock", 1)
	if due := a.due.take(); len(due) != 0 {
		t.Errorf("changes of the start are due: %v", due)
	}
	a.due.begin()
	a.due.add("shop", "lock", 2)
	a.due.add("", "peers-0", 3)
	a.due.add("", "", 0) // a group that is not published yet
	failed := a.due.take()
	a.due.add("shop", "lock", 4)
	a.due.giveBack(failed)
	a.inKernel(a.due.take(), true)
	if got := kept(); !slices.Equal(got, []int64{2, 3, 4}) {
		t.Errorf("kept %v", got)
	}
	a.due.add("shop", "far", 5)
	a.due.add("", "peers-0", 6)
	a.inKernel(a.due.take(), false)
	if got := kept(); !slices.Equal(got, []int64{2, 3, 4, 6}) {
		t.Errorf("kept %v; a policy that changes no rule here has none", got)
	}
	for i := range 2 * maxDue {
		a.due.add("shop", "lock", int64(10+i))
	}
	if due := a.due.take(); len(due) != maxDue {
		t.Errorf("%d changes are due, at most %d are allowed", len(due), maxDue)
	}
}
