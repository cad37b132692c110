package apiserver

import (
	"slices"
	"testing"

	"github.com/knarr-project/knarr/internal/cache"
)

func TestReusedEntrySlicesAreEmpty(t *testing.T) {
	p := &page{}
	for range 3 * manyObjects {
		p.entries = append(roomFor(p.entries, 3*manyObjects), &cache.Entry{})
	}
	used := p.entries
	if len(used) != 3*manyObjects || cap(used) > 4*manyObjects {
		t.Fatalf("%d entries with room for %d", len(used), cap(used))
	}
	p.sent()
	if p.entries != nil || slices.ContainsFunc(used, func(e *cache.Entry) bool { return e != nil }) {
		t.Error("entries that were sent are still held")
	}
}
