package controller

import (
	"context"
	"sync"

	"github.com/knarr-project/knarr/internal/insight/because"
)

// maxCausedKeys bounds the keys of one queue whose causes are remembered: about 1 MB.
const maxCausedKeys = 8192

// waitingCauses are the revisions that have put keys into a queue. It remembers nothing until it is
// told that causes are tracked.
type waitingCauses[K comparable] struct {
	mu      sync.Mutex
	tracked bool
	of      map[K]because.Revisions
}

// track turns it on if the context is one whose causes are tracked.
func (c *waitingCauses[K]) track(ctx context.Context) {
	if !because.Tracked(ctx) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tracked = true
}

// add merges causes into those of a waiting key.
func (c *waitingCauses[K]) add(key K, causes because.Revisions) {
	if causes.Len() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tracked {
		return
	}
	have, waits := c.of[key]
	if !waits && len(c.of) >= maxCausedKeys {
		return
	}
	if c.of == nil {
		c.of = map[K]because.Revisions{}
	}
	have.AddAll(causes)
	c.of[key] = have
}

// take removes the causes of a key.
func (c *waitingCauses[K]) take(key K) because.Revisions {
	c.mu.Lock()
	defer c.mu.Unlock()
	causes, ok := c.of[key]
	if ok {
		delete(c.of, key)
	}
	return causes
}
