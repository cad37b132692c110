package apiserver

import (
	"slices"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/cache"
)

func TestReusedEntrySlicesAreEmpty(t *testing.T) {
	p := &registry.Page{}
	for range 3 * registry.ManyObjects {
		p.Entries = append(registry.Grown(p.Entries, 3*registry.ManyObjects), &cache.Entry{})
	}
	used := p.Entries
	if len(used) != 3*registry.ManyObjects || cap(used) > 4*registry.ManyObjects {
		t.Fatalf("%d entries with room for %d", len(used), cap(used))
	}
	p.Release()
	if p.Entries != nil || slices.ContainsFunc(used, func(e *cache.Entry) bool { return e != nil }) {
		t.Error("entries that were sent are still held")
	}
}
