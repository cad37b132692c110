package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/store"
)

func keys(r store.RangeResult) string {
	var out []string
	for _, kv := range r.KVs {
		out = append(out, kv.Key)
	}
	return strings.Join(out, " ")
}

func ranges(t *testing.T, s store.Store) {
	for _, k := range []string{"/a", "/p", "/p/1", "/p/2", "/p/3", "/p0", "/q/1"} {
		put(t, s, k, "v"+k)
	}
	tests := []struct {
		name   string
		prefix string
		o      store.RangeOptions
		want   string
		count  int64
		more   bool
	}{
		{"everything below a prefix", "/p/", store.RangeOptions{}, "/p/1 /p/2 /p/3", 3, false},
		{"a prefix is of the key, not of a folder", "/p", store.RangeOptions{}, "/p /p/1 /p/2 /p/3 /p0", 5, false},
		{"a limit leaves more", "/p/", store.RangeOptions{Limit: 2}, "/p/1 /p/2", 3, true},
		{"a limit that is just enough", "/p/", store.RangeOptions{Limit: 3}, "/p/1 /p/2 /p/3", 3, false},
		{"from a key on", "/p/", store.RangeOptions{From: "/p/2"}, "/p/2 /p/3", 2, false},
		{"from behind a key on", "/p/", store.RangeOptions{From: "/p/2\x00"}, "/p/3", 1, false},
		{"from before the prefix", "/p/", store.RangeOptions{From: "/a"}, "/p/1 /p/2 /p/3", 3, false},
		{"from behind the prefix", "/p/", store.RangeOptions{From: "/q/1"}, "", 0, false},
		{"from the end of the prefix", "/p/", store.RangeOptions{From: "/p0"}, "", 0, false},
		{"from with a limit counts the rest", "/p/", store.RangeOptions{From: "/p/2", Limit: 1}, "/p/2", 2, true},
		{"only the count", "/p/", store.RangeOptions{CountOnly: true}, "", 3, false},
		{"nothing there", "/z/", store.RangeOptions{}, "", 0, false},
		{"all keys", "", store.RangeOptions{}, "/a /p /p/1 /p/2 /p/3 /p0 /q/1", 7, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := rng(t, s, tt.prefix, tt.o)
			if keys(r) != tt.want || r.Count != tt.count || r.More != tt.more {
				t.Errorf("got %q count %d more %v; want %q %d %v", keys(r), r.Count, r.More, tt.want, tt.count, tt.more)
			}
			if r.Revision == 0 {
				t.Error("no revision")
			}
			for _, kv := range r.KVs {
				if string(kv.Value) != "v"+kv.Key {
					t.Errorf("%s has the value %q", kv.Key, kv.Value)
				}
			}
		})
	}
	for _, kv := range rng(t, s, "/p/", store.RangeOptions{KeysOnly: true}).KVs {
		if len(kv.Value) > 0 || kv.ModRevision == 0 {
			t.Errorf("keys only: %+v", kv)
		}
	}
}

func pagination(t *testing.T, s store.Store) {
	for i := range 25 {
		put(t, s, fmt.Sprintf("/p/%02d", i), "old")
	}
	first := rng(t, s, "/p/", store.RangeOptions{Limit: 10})
	// Writes between the pages must not show.
	put(t, s, "/p/15", "new")
	del(t, s, "/p/16")
	put(t, s, "/p/155", "new")
	got := first.KVs
	for page := first; page.More; {
		page = rng(t, s, "/p/", store.RangeOptions{Limit: 10, Revision: first.Revision, From: got[len(got)-1].Key + "\x00"})
		if page.Revision != first.Revision {
			t.Fatalf("a page of revision %d, the first was %d", page.Revision, first.Revision)
		}
		got = append(got, page.KVs...)
	}
	if len(got) != 25 {
		t.Errorf("%d keys on all pages, want 25", len(got))
	}
	for _, kv := range got {
		if string(kv.Value) != "old" {
			t.Errorf("%s is %q", kv.Key, kv.Value)
		}
	}
}
