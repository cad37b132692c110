package apiserver

import (
	"sync"
	"weak"
)

// sharedLists lets those who list all objects at the same revision at about the same time (a thousand clients after a restart)
// share one body. Bodies are kept weakly: until the garbage collector comes by.
// The zero value is ready.
type sharedLists struct {
	mu    sync.Mutex
	lists map[listForm]*sharedList
}

// listForm is what a kind is listed as: a version's encoding, of one namespace or of all.
type listForm struct{ form, prefix string }

// sharedForms is how many forms are looked after at a time.
const sharedForms = 32

type sharedList struct {
	mu       sync.Mutex // held while the body is made, so that it is made once
	revision int64
	body     weak.Pointer[[]byte]
}

// body is the page's encoding, shared if it is of everything: not to be modified.
func (s *sharedLists) body(form string, p *page, encode func() ([]byte, error)) ([]byte, error) {
	if p.whole == "" {
		return encode()
	}
	l := s.list(listForm{form, p.whole})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revision == p.revision {
		if body := l.body.Value(); body != nil {
			return *body, nil
		}
	}
	body, err := encode()
	if err != nil || p.revision < l.revision {
		return body, err // who comes late with an old state does not take the newer one away
	}
	l.revision, l.body = p.revision, weak.Make(&body)
	return body, nil
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
