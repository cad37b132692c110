package ownership

import (
	"strings"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// parsed is a manager's field set; it is shared and must not be changed.
type parsed struct {
	set     *fieldpath.Set
	encoded []byte // our encoding, which may differ from the client's
	// emptyKey is set if the key of some list item is an empty string.
	emptyKey bool
}

// emptyKeyText is the encoding of such a key.
const emptyKeyText = `\":\"\"`

// Limits of a memory.
const (
	memoEntries = 256 // in each of two generations
	memoLongest = 8 << 10
)

// memory keeps the values used last in two generations: when the new one is full, it becomes the
// old one, and values that are used again move to the new one.
type memory[K comparable, V any] struct {
	mu       sync.Mutex
	new, old map[K]V
}

// memoKey has the kind, because the result depends on its schema.
type memoKey struct {
	kind *typed.TypedValue
	raw  string
}

// memo keeps parsed sets.
var memo memory[memoKey, parsed]

func (m *memory[K, V]) get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.new[key]; ok {
		return v, true
	}
	v, ok := m.old[key]
	if ok {
		m.add(key, v)
	}
	return v, ok
}

func (m *memory[K, V]) put(key K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(key, v)
}

func (m *memory[K, V]) add(key K, v V) {
	if m.new == nil || len(m.new) >= memoEntries {
		m.new, m.old = make(map[K]V, memoEntries), m.new
	}
	m.new[key] = v
}

// parse parses a manager's FieldsV1, and adjusts it to fields that have become atomic in the schema
// since.
func (t *Tracker) parse(raw string) (parsed, bool) {
	key := memoKey{t.kind, raw}
	if p, ok := memo.get(key); ok {
		return p, true
	}
	var set fieldpath.Set
	if err := set.FromJSON(strings.NewReader(raw)); err != nil {
		return parsed{}, false
	}
	p := parsed{set: &set, emptyKey: strings.Contains(raw, emptyKeyText)}
	reconciled, err := typed.ReconcileFieldSetWithSchema(p.set, t.kind)
	if err != nil {
		return parsed{}, false
	}
	if reconciled != nil {
		p.set = reconciled
	}
	if p.encoded, err = p.set.ToJSON(); err != nil {
		return parsed{}, false
	}
	if len(raw) <= memoLongest {
		key.raw = strings.Clone(raw) // so that the memo does not keep the object alive
		memo.put(key, p)
	}
	return p, true
}
