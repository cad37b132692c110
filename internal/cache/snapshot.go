package cache

import (
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/btree"
)

// tree is a copy-on-write B-tree of entries by key. A published tree is never modified; its copies
// share the nodes.
type tree = btree.BTreeG[*Entry]

func newTree() *tree {
	return btree.NewBTreeGOptions(func(a, b *Entry) bool { return a.Key < b.Key }, btree.Options{Degree: 32, NoLocks: true})
}

// indexTree holds the keys of entries by index value. The entries are in the tree beside it, so a
// change that keeps the index values changes no index.
type indexTree = btree.BTreeG[indexItem]

type indexItem struct{ value, key string }

func newIndexTree() *indexTree {
	return btree.NewBTreeGOptions(func(a, b indexItem) bool {
		if a.value != b.value {
			return a.value < b.value
		}
		return a.key < b.key
	}, btree.Options{Degree: 16, NoLocks: true})
}

// index is a named index in one state of a kind.
type index struct {
	values func(*Entry) []string
	keys   *indexTree
}

func (ix *index) add(e *Entry) {
	for _, v := range ix.values(e) {
		ix.keys.Set(indexItem{value: v, key: e.Key})
	}
}

// with returns the index after the changes: ix itself if no value changes.
func (ix *index) with(changes []*event) *index {
	next := ix
	for _, c := range changes {
		var was, is []string
		if c.old != nil {
			was = ix.values(c.old)
		}
		if c.new != nil {
			is = ix.values(c.new)
		}
		if slices.Equal(was, is) {
			continue
		}
		next = ix.own(next)
		for _, v := range was {
			next.keys.Delete(indexItem{value: v, key: c.old.Key})
		}
		for _, v := range is {
			next.keys.Set(indexItem{value: v, key: c.new.Key})
		}
	}
	return next
}

// own returns next if it is already a copy, else a new copy of the index for changes. The published
// tree stays read-only. The copy marks the original's nodes as shared, in a field that readers do
// not read.
func (ix *index) own(next *index) *index {
	if next != ix {
		return next
	}
	return &index{values: ix.values, keys: ix.keys.Copy()}
}

// Snapshot is all entries of a kind at one revision. It is immutable.
type Snapshot struct {
	revision int64
	changed  int64
	begun    uint64 // Kind.begun; 0 for a state that the kind has never shown
	entries  *tree
	indexes  map[string]*index
}

// Changed returns the revision of the newest change in the kind: snapshots with the same one have
// equal entries, whatever their Revision. It returns 0 if that is unknown.
func (s *Snapshot) Changed() int64 { return s.changed }

// Revision returns the revision of the snapshot.
func (s *Snapshot) Revision() int64 { return s.revision }

// Len returns the number of entries.
func (s *Snapshot) Len() int { return s.entries.Len() }

var probes = sync.Pool{New: func() any { return new(Entry) }}

// Get returns the entry of a full store key.
func (s *Snapshot) Get(key string) (*Entry, bool) {
	p := probes.Get().(*Entry)
	p.Key = key
	e, ok := s.entries.Get(p)
	p.Key = ""
	probes.Put(p)
	return e, ok
}

// Ascend calls fn, in key order, for each entry below prefix with a key of at least from, until fn
// returns false.
func (s *Snapshot) Ascend(prefix, from string, fn func(*Entry) bool) {
	if s.entries.Len() == 0 {
		return
	}
	p := probes.Get().(*Entry)
	p.Key = max(prefix, from)
	s.entries.Ascend(p, func(e *Entry) bool {
		return strings.HasPrefix(e.Key, prefix) && fn(e)
	})
	p.Key = ""
	probes.Put(p)
}

// Count returns the number of entries below prefix with a key of at least from.
func (s *Snapshot) Count(prefix, from string) int {
	n := 0
	s.Ascend(prefix, from, func(*Entry) bool { n++; return true })
	return n
}

// ByIndex calls fn, in key order, for each entry with the value in the index, until fn returns
// false. It returns false if the snapshot was taken before Kind.AddIndex made such an index.
func (s *Snapshot) ByIndex(name, value string, fn func(*Entry) bool) bool {
	ix, ok := s.indexes[name]
	if !ok {
		return false
	}
	ix.keys.Ascend(indexItem{value: value}, func(i indexItem) bool {
		if i.value != value {
			return false
		}
		e, ok := s.Get(i.key)
		return !ok || fn(e)
	})
	return true
}
