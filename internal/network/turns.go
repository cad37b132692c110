package network

import "sync"

// turns lets one operation at a time work on an attachment: ADD, DEL, or the removal of its link in
// the background. Operations on different attachments do not wait for each other.
type turns struct {
	mu   sync.Mutex
	busy map[string]*turn // by the attachment's key
}

type turn struct {
	mu    sync.Mutex
	users int // that have it or wait for it
}

// enter waits for the turn of an attachment. The caller must call leave.
func (t *turns) enter(key string) (leave func()) {
	t.mu.Lock()
	if t.busy == nil {
		t.busy = map[string]*turn{}
	}
	own := t.busy[key]
	if own == nil {
		own = &turn{}
		t.busy[key] = own
	}
	own.users++
	t.mu.Unlock()
	own.mu.Lock()
	return func() {
		own.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.busy, key)
		}
	}
}
