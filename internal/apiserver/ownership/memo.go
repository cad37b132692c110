package ownership

import (
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/knarr-project/knarr/internal/memo"
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

// Limits of what the process remembers.
const (
	memoEntries = 256 // in each of two generations
	memoLongest = 8 << 10
)

// memoKey has the kind, because the result depends on its schema.
type memoKey struct {
	kind *typed.TypedValue
	raw  string
}

// parsedSets are the sets parsed last.
var parsedSets = memo.Memo[memoKey, parsed]{Size: memoEntries}

// parse parses a manager's FieldsV1, and adjusts it to fields that have become atomic in the schema
// since.
func (t *Tracker) parse(raw string) (parsed, bool) {
	key := memoKey{t.kind, raw}
	if p, ok := parsedSets.Get(key); ok {
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
		parsedSets.Put(key, p)
	}
	return p, true
}
