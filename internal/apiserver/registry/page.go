package registry

import (
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/cache"
)

// Page is one answer to a list.
type Page struct {
	Entries   []*cache.Entry
	Revision  int64
	Next      string // continue token
	Remaining *int64
	// CompletePrefix is a prefix if the page has all objects below it; empty if some may be
	// missing.
	CompletePrefix string
	// Changed is the revision of the kind's newest change.
	Changed int64
	Scanned int  // objects looked at
	Zipped  bool // it will be sent compressed
}

func (p *Page) meta() metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: strconv.FormatInt(p.Revision, 10), Continue: p.Next, RemainingItemCount: p.Remaining}
}

// EntriesPool are slices of large pages that have been sent. Appending a hundred thousand entries
// leaves several times their memory as garbage, and writes wait while it is collected.
var EntriesPool = sync.Pool{New: func() any { return new([]*cache.Entry) }}

// Grown returns entries with capacity for one more, and at most for most.
func Grown(entries []*cache.Entry, most int) []*cache.Entry {
	if n := len(entries); n == cap(entries) && n >= 1024 {
		return append(make([]*cache.Entry, 0, max(n+1, min(8*n, most))), entries...)
	}
	return entries
}

// Release returns the entries to the pool. The page must not be used any more.
func (p *Page) Release() {
	if entries := p.Entries; cap(entries) >= ManyObjects {
		p.Entries = nil
		clear(entries)
		entries = entries[:0]
		EntriesPool.Put(&entries)
	}
}
