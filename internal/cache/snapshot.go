package cache

import (
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/btree"
)

// tree is a copy-on-write B-tree of entries by key. A published tree is never modified; its Copy shares all nodes.
type tree = btree.BTreeG[*Entry]

func newTree() *tree {
	return btree.NewBTreeGOptions(func(a, b *Entry) bool { return a.Key < b.Key }, btree.Options{Degree: 32, NoLocks: true})
}

// indexTree holds the keys of entries by index value. The entries are in the tree beside it, so that one that changes without changing its
// values changes no index.
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

// with is the index after changes: itself when they change none of its values.
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

// own makes a copy of the index that may be changed, unless next is one. The published tree is only read; the copy is ours until it is
// published in turn. Copying marks the original as shared, which no reader looks at.
func (ix *index) own(next *index) *index {
	if next != ix {
		return next
	}
	return &index{values: ix.values, keys: ix.keys.Copy()}
}

// Snapshot is all entries of a kind at one revision. Immutable.
type Snapshot struct {
	revision int64
	changed  int64
	begun    uint64 // Kind.begun; 0 when it is of no state that the kind has shown
	entries  *tree
	indexes  map[string]*index
}

// Changed is the revision of the newest change in the kind: snapshots with the same one have the same entries, whatever their
// Revision. 0 when that is not known.
func (s *Snapshot) Changed() int64 { return s.changed }

// Revision of the snapshot.
func (s *Snapshot) Revision() int64 { return s.revision }

// Len is how many entries there are.
func (s *Snapshot) Len() int { return s.entries.Len() }

var probes = sync.Pool{New: func() any { return new(Entry) }}

// Get finds by full store key.
func (s *Snapshot) Get(key string) (*Entry, bool) {
	p := probes.Get().(*Entry)
	p.Key = key
	e, ok := s.entries.Get(p)
	p.Key = ""
	probes.Put(p)
	return e, ok
}

// Ascend calls fn for each entry below prefix with a key of at least from, in key order, until fn returns false.
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

// Count is how many entries are below prefix with a key of at least from.
func (s *Snapshot) Count(prefix, from string) int {
	n := 0
	s.Ascend(prefix, from, func(*Entry) bool { n++; return true })
	return n
}

// ByIndex calls fn, in key order, for each entry that has the value in an index made by Kind.AddIndex before the
// snapshot was taken, until fn returns false. It returns false when there is no such index.
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
