package registry

import (
	"testing"
	"time"
)

func TestSharedItemsAreBuiltByOneListAtATime(t *testing.T) {
	var s sharedLists
	p, now := &Page{Changed: 1, CompletePrefix: "/p/"}, time.Unix(0, 0)
	ask := func() (list *sharedList, together bool) {
		now = now.Add(time.Minute) // however long it takes
		_, list, together = s.find("json", p, now)
		return list, together
	}
	ask()
	list, together := ask()
	if !together {
		t.Fatal("the second list was not asked to build them")
	}
	if _, another := ask(); another {
		t.Error("another list was asked to build them at the same time")
	}
	list.keep(p.Changed, nil) // the build has failed
	if _, next := ask(); !next {
		t.Error("the next list was not asked to try again")
	}
}

func TestSharedItemsAreBuiltOncePerState(t *testing.T) {
	var s sharedLists
	now := time.Unix(0, 0)
	const none, all, shared = "none", "put together", "shared"
	ask := func(changed int64, whole string) string {
		t.Helper()
		p := &Page{Changed: changed, CompletePrefix: whole}
		items, list, together := s.find("json", p, now)
		switch {
		case items != nil:
			return shared
		case together:
			list.keep(changed, &sharedItems{plain: []byte("items")})
			return all
		}
		return none
	}
	for _, step := range []struct {
		what    string
		later   time.Duration
		changed int64
		whole   string
		want    string
	}{
		{"the first list encodes from the entries", 0, 1, "/p/", none},
		{"the second list builds the items", 0, 1, "/p/", all},
		{"further lists share them", 0, 1, "/p/", shared},
		{"a page shares nothing", 0, 1, "", none},
		{"an unknown state shares nothing", 0, 0, "/p/", none},
		{"another namespace is another list", 0, 1, "/q/", none},
		{"after a change the first list encodes from the entries", 0, 2, "/p/", none},
		{"items are not built again so soon", 0, 2, "/p/", none},
		{"the old state is still shared", 0, 1, "/p/", shared},
		{"a second later they are built again", minSharedInterval, 2, "/p/", all},
		{"a list of an old state does not replace newer items", 0, 1, "/p/", none},
		{"the newer items are still shared", 0, 2, "/p/", shared},
	} {
		now = now.Add(step.later)
		got := ask(step.changed, step.whole)
		// The garbage collector may have freed it.
		if got != step.want && !(step.want == shared && got != shared) {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
}
