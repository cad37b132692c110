package registry

import (
	"sync"
	"time"
	"weak"
)

// sharedLists lets clients that list all objects in the same state at about the same time (a
// thousand clients after a restart) share the items' bytes, and compresses them once. It holds the
// items by weak pointers: the garbage collector frees them when no response uses them. The first
// list of a state is encoded without sharing: while objects change between any two lists, nothing
// is built that no other list needs. The zero value is ready.
type sharedLists struct {
	mu    sync.Mutex
	lists map[listForm]*sharedList
}

// listForm identifies a form of a kind's lists: the encoding of a version, of one namespace or of
// all.
type listForm struct{ form, prefix string }

const (
	// maxSharedForms is the largest number of forms that are tracked at a time.
	maxSharedForms = 32
	// minSharedInterval is the shortest interval at which a form's items are built: slow clients
	// may still be reading the last ones.
	minSharedInterval = time.Second
	// maxSharedBytes limits items that are built to be compressed once for all, in bytes.
	// Uncompressed lists are shared only below laneMinBytes: larger ones save little, and so much
	// garbage would delay writes while it is collected.
	maxSharedBytes = 256 << 20
)

// sharedList is the state of one form of a kind's lists.
type sharedList struct {
	mu         sync.Mutex // not held while items are built
	lastListed int64      // state of the last list
	builtFor   int64      // state of items
	builtAt    time.Time  // when the last build began
	building   bool       // a build is running
	items      weak.Pointer[sharedItems]
}

// sharedItems are the items of a state, as one byte slice.
type sharedItems struct {
	plain []byte

	once    sync.Once // guards the following fields
	deflate deflated
	err     error
}

// find returns the page's items if they are shared. If make is true, the caller must build them for
// all and call the list's keep.
func (s *sharedLists) find(form string, p *Page, now time.Time) (items *sharedItems, list *sharedList, make bool) {
	if p.CompletePrefix == "" || p.Changed == 0 {
		return nil, nil, false
	}
	l := s.list(listForm{form, p.CompletePrefix})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.builtFor == p.Changed {
		if items := l.items.Value(); items != nil {
			return items, l, false
		}
	}
	again := l.lastListed == p.Changed
	l.lastListed = max(l.lastListed, p.Changed)
	if !again || l.building || now.Sub(l.builtAt) < minSharedInterval {
		return nil, l, false
	}
	l.builtAt, l.building = now, true
	return nil, l, true
}

// keep shares items that were built; nil if the build failed.
func (l *sharedList) keep(changed int64, items *sharedItems) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.building = false
	if items != nil && changed >= l.builtFor {
		l.builtFor, l.items = changed, weak.Make(items)
	}
}

func (s *sharedLists) list(form listForm) *sharedList {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.lists[form]; ok {
		return l
	}
	if s.lists == nil || len(s.lists) >= maxSharedForms {
		s.lists = map[listForm]*sharedList{}
	}
	l := &sharedList{}
	s.lists[form] = l
	return l
}
