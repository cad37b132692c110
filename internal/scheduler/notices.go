package scheduler

import "sync"

// notices wakes the goroutines that wait for changes of certain objects. Each has its own channel:
// a change of one pod's claim does not wake all waiting pods. Safe for concurrent use.
type notices struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool
}

// expect returns a channel that has a value after the next change of one of the objects. stop ends
// the wait.
func (n *notices) expect(keys ...string) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting == nil {
		n.waiting = map[string]map[chan struct{}]bool{}
	}
	for _, key := range keys {
		if n.waiting[key] == nil {
			n.waiting[key] = map[chan struct{}]bool{}
		}
		n.waiting[key][ch] = true
	}
	return ch, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, key := range keys {
			if delete(n.waiting[key], ch); len(n.waiting[key]) == 0 {
				delete(n.waiting, key)
			}
		}
	}
}

// notify wakes the goroutines that wait for the object.
func (n *notices) notify(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ch := range n.waiting[key] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Keys of objects. A volume has no namespace, so its key differs from a claim's.
func claimKey(namespace, name string) string { return namespace + "/" + name }
func volumeKey(name string) string           { return name }
