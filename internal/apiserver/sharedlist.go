package apiserver

import (
	"sync"
	"time"
	"weak"
)

// sharedLists lets those who list all objects of the same state at about the same time (a thousand clients after a restart) share the items' bytes, and compress them once. They
// are kept weakly: until nobody sends them any more and the garbage collector comes by. The first one to ask for a state gets its items straight from their
// entries: while objects change between any two lists, nothing is put together that nobody else wants.
// The zero value is ready.
type sharedLists struct {
	mu    sync.Mutex
	lists map[listForm]*sharedList
}

// listForm is what a kind is listed as: a version's encoding, of one namespace or of all.
type listForm struct{ form, prefix string }

const (
	// sharedForms is how many forms are looked after at a time.
	sharedForms = 32
	// sharedEvery is how often a form's items are put together at most: slow clients may still be reading the last ones.
	sharedEvery = time.Second
	// largestShared bounds what is put together to be compressed once for all. What is sent as it is is put together up to laneFrom only: it spares others
	// little, and so much garbage at once would make writes wait for its collection.
	largestShared = 256 << 20
)

type sharedList struct {
	mu    sync.Mutex // not held while items are put together
	asked int64      // the state that was last asked for
	made  int64      // the state that items are of
	at    time.Time  // when that was begun last
	busy  bool       // and it is not done
	items weak.Pointer[sharedItems]
}

// sharedItems are the items of a state, in one piece.
type sharedItems struct {
	plain []byte

	once    sync.Once // guards what follows
	deflate deflated
	err     error
}

// find gives the items of the page if they are shared. make: they should be, and the caller is to put them together for all, and has to call the list's keep.
func (s *sharedLists) find(form string, p *page, now time.Time) (items *sharedItems, list *sharedList, make bool) {
	if p.whole == "" || p.changed == 0 {
		return nil, nil, false
	}
	l := s.list(listForm{form, p.whole})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == p.changed {
		if items := l.items.Value(); items != nil {
			return items, l, false
		}
	}
	again := l.asked == p.changed
	l.asked = max(l.asked, p.changed)
	if !again || l.busy || now.Sub(l.at) < sharedEvery {
		return nil, l, false
	}
	l.at, l.busy = now, true
	return nil, l, true
}

// keep shares items that were put together; nil when they were not.
func (l *sharedList) keep(changed int64, items *sharedItems) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
	if items != nil && changed >= l.made {
		l.made, l.items = changed, weak.Make(items)
	}
}

func (s *sharedLists) list(form listForm) *sharedList {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.lists[form]; ok {
		return l
	}
	if s.lists == nil || len(s.lists) >= sharedForms {
		s.lists = map[listForm]*sharedList{}
	}
	l := &sharedList{}
	s.lists[form] = l
	return l
}
