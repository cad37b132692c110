// Package memo remembers recent results.
package memo

import "sync"

// Memo remembers up to twice Size recent results of a costly function, such as the verification
// of a signature. It keeps two generations: when the young one is full it replaces the old one, and
// entries not used since then are dropped. The zero value with Size set is ready. Safe for
// concurrent use.
type Memo[K comparable, V any] struct {
	Size int

	mu         sync.Mutex
	young, old map[K]V
}

// Get returns the value of the key, if it is remembered.
func (m *Memo[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.young[key]
	if !ok {
		if v, ok = m.old[key]; ok {
			m.put(key, v)
		}
	}
	return v, ok
}

// Put remembers a value.
func (m *Memo[K, V]) Put(key K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, v)
}

func (m *Memo[K, V]) put(key K, v V) {
	if m.young == nil || len(m.young) >= m.Size {
		m.old, m.young = m.young, make(map[K]V)
	}
	m.young[key] = v
}
