package images

import (
	"sync"
	"time"
)

// Back-off of failed pulls. It doubles with each failure and is reset after twice the longest
// delay.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
)

type backoffs struct {
	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	wait time.Duration
	last time.Time
}

// until returns when the key may be tried again. The zero time means now.
func (b *backoffs) until(key string, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[key]
	if e == nil || now.Sub(e.last) >= e.wait {
		return time.Time{}
	}
	return e.last.Add(e.wait)
}

func (b *backoffs) failed(key string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, e := range b.entries {
		if now.Sub(e.last) > 2*maxBackoff {
			delete(b.entries, k)
		}
	}
	e := b.entries[key]
	if e == nil {
		b.entries[key] = &entry{firstBackoff, now}
		return
	}
	e.wait, e.last = min(2*e.wait, maxBackoff), now
}
