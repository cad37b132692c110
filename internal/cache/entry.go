package cache

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/store"
)

// Entry is one object at one revision. It is immutable. Derived forms are made once, on first use.
type Entry struct {
	Header
	Key      string
	Revision int64

	stored []byte // nil if packed
	packed *place // place of the stored bytes, for a state that only the log holds

	schema    *Schema
	object    atomic.Pointer[decoded]
	encodings atomic.Pointer[encoding]
	derived   atomic.Pointer[derivation]

	flags atomic.Uint32
}

// Flags of an entry.
const (
	objectUsed uint32 = 1 << iota // since the last call of dropUnused
	formsUsed                     // since the last call of dropUnused
	replaced                      // by a newer entry: encodings are no longer kept
)

// derivation is an object derived from the entry's object, in a linked list.
type derivation struct {
	name   string
	next   *derivation
	object runtime.Object
}

type decoded struct {
	object runtime.Object
	err    error
}

// encoding is one encoded form of an entry, in a linked list: most entries have one, few more than
// two.
type encoding struct {
	format string
	next   *encoding
	making sync.Mutex
	made   atomic.Pointer[[]byte]
	// passing is guarded by making.
	passing weak.Pointer[[]byte]
}

// newEntry returns the entry of a stored key with its header. It keeps the object decoded for the
// header until release or dropUnused.
func newEntry(schema *Schema, kv *store.KeyValue) *Entry {
	e := &Entry{Key: kv.Key, Revision: kv.ModRevision, stored: kv.Value, schema: schema}
	obj, err := schema.Decode(kv.Value, kv.ModRevision)
	if err != nil {
		// Keep the entry under the names in its key. Readers of the object get the error.
		e.Namespace, e.Name = namesOf(schema.Prefix, kv.Key)
		e.object.Store(&decoded{err: err})
		return e
	}
	e.Header = schema.Header(obj)
	e.shareKey()
	e.shareStored()
	if schema.Keep {
		e.shareOwners(obj)
	}
	e.object.Store(&decoded{object: obj})
	watchForMutation(e, obj)
	return e
}

// shareKey makes the names substrings of the key, which saves two strings.
func (e *Entry) shareKey() {
	rest, ok := strings.CutSuffix(e.Key, "/"+e.Name)
	if !ok || e.Name == "" {
		return
	}
	e.Name = e.Key[len(rest)+1:]
	if e.Namespace != "" && strings.HasSuffix(rest, "/"+e.Namespace) {
		e.Namespace = rest[len(rest)-len(e.Namespace):]
	}
}

// maxMissing is the most parts searched for in vain per entry, since each such search scans the
// rest of the stored bytes.
const maxMissing = 16

// finder finds substrings in the stored bytes in the order of their occurrence. An object can have
// tens of thousands, so each search starts where the last one ended.
type finder struct {
	in      []byte
	missing int
}

// next returns the part within the stored bytes, or nil if it does not follow the part found last.
func (f *finder) next(part []byte) []byte {
	if len(part) == 0 || f.missing >= maxMissing {
		return nil
	}
	i := bytes.Index(f.in, part)
	if i < 0 {
		f.missing++
		return nil
	}
	found := f.in[i : i+len(part) : i+len(part)]
	f.in = f.in[i+len(part):]
	return found
}

// text is next for strings. It returns s itself if it is not found.
func (f *finder) text(s string) string {
	if found := f.next(unsafe.Slice(unsafe.StringData(s), len(s))); found != nil {
		return unsafe.String(&found[0], len(found)) // the bytes are never modified
	}
	return s
}

// shareStored makes the header's strings substrings of the stored bytes. They occur there unless
// escaped or encrypted.
func (e *Entry) shareStored() {
	e.UID = (&finder{in: e.stored}).text(e.UID)
	for i, pair := range e.Fields { // few, in the kind's order
		e.Fields[i] = Pair{(&finder{in: e.stored}).text(pair.Name), (&finder{in: e.stored}).text(pair.Value)}
	}
	labels := finder{in: e.stored} // sorted, as in the stored bytes
	for i, pair := range e.Labels {
		e.Labels[i] = Pair{labels.text(pair.Name), labels.text(pair.Value)}
	}
}

// shareOwners makes an object's managedFields, a third of its size, substrings of the stored bytes.
func (e *Entry) shareOwners(obj runtime.Object) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	sets := finder{in: e.stored}
	for _, owner := range m.GetManagedFields() {
		if f := owner.FieldsV1; f != nil {
			if found := sets.next(f.Raw); found != nil {
				f.Raw = found
			}
		}
	}
}

// Stored returns the object's stored bytes. They are shared: do not modify them.
func (e *Entry) Stored() []byte {
	if e.packed != nil {
		return e.packed.pack.open()[e.packed.from:e.packed.to:e.packed.to]
	}
	return e.stored
}

func namesOf(prefix, key string) (namespace, name string) {
	rest := strings.TrimPrefix(strings.TrimPrefix(key, prefix), "/")
	if ns, n, ok := strings.Cut(rest, "/"); ok {
		return ns, n
	}
	return "", rest
}

// Object returns the decoded object, shared and read-only.
func (e *Entry) Object() (runtime.Object, error) {
	e.mark(objectUsed)
	if d := e.object.Load(); d != nil {
		return d.object, d.err
	}
	obj, err := e.schema.Decode(e.Stored(), e.Revision)
	// Concurrent callers get the same object.
	made := &decoded{object: obj, err: err}
	for !e.object.CompareAndSwap(nil, made) {
		if d := e.object.Load(); d != nil { // nil: it was dropped again
			return d.object, d.err
		}
	}
	if err == nil {
		watchForMutation(e, obj)
	}
	return obj, err
}

// Derived returns another object made from the entry's object, under a name chosen by the caller
// ("metadata", "v2"). It is made once and kept, shared and read-only; the entry's own object is not
// kept for it. An error is not kept: a missing conversion webhook may be back for the next call.
func (e *Entry) Derived(name string, derive func(runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	e.mark(formsUsed)
	var made *derivation
	for {
		head := e.derived.Load()
		for d := head; d != nil; d = d.next {
			if d.name == name {
				return d.object, nil
			}
		}
		if made == nil {
			obj, err := e.Peek()
			if err == nil {
				obj, err = derive(obj)
			}
			if err != nil {
				return nil, err
			}
			made = &derivation{name: name, object: obj}
			watchForMutation(e, obj)
		}
		made.next = head
		if e.derived.CompareAndSwap(head, made) {
			return made.object, nil
		}
	}
}

// Peek returns the object if it is kept, else one decoded for this caller. It may be shared:
// read-only.
func (e *Entry) Peek() (runtime.Object, error) {
	if d := e.object.Load(); d != nil {
		return d.object, d.err
	}
	return e.schema.Decode(e.Stored(), e.Revision)
}

// Encoded returns the object's encoding under a name chosen by the caller ("v1+json"). encode makes
// it once, and it is kept while it is used. The bytes are shared: do not modify them. The object is
// not kept for it.
func (e *Entry) Encoded(format string, encode func(runtime.Object) ([]byte, error)) ([]byte, error) {
	return e.EncodedBy(format, func() ([]byte, error) {
		obj, err := e.Peek()
		if err != nil {
			return nil, err
		}
		return encode(obj)
	})
}

// EncodedBy is Encoded for an encoding of another object than the entry's own, such as a derived
// one. An error is not kept.
func (e *Entry) EncodedBy(format string, encode func() ([]byte, error)) ([]byte, error) {
	if e.flags.Load()&replaced != 0 {
		return encode()
	}
	e.mark(formsUsed)
	enc := e.encoding(format)
	if made := enc.made.Load(); made != nil {
		return *made, nil
	}
	enc.making.Lock()
	defer enc.making.Unlock()
	if made := enc.made.Load(); made != nil {
		return *made, nil
	}
	data, err := encode()
	if err != nil {
		return nil, err
	}
	enc.made.Store(&data)
	return data, nil
}

// EncodedOnce is EncodedBy for an encoding that becomes part of another shared form, such as the
// frame of a watch event. It uses an existing encoding but keeps no new one.
func (e *Entry) EncodedOnce(format string, encode func() ([]byte, error)) ([]byte, error) {
	for n := e.encodings.Load(); n != nil; n = n.next {
		if n.format != format {
			continue
		}
		if made := n.made.Load(); made != nil {
			e.mark(formsUsed)
			return *made, nil
		}
	}
	return encode()
}

// Passing is EncodedBy for an encoding that many callers want at the same moment and none later,
// such as the frame of a watch event. It is kept until the next garbage collection.
func (e *Entry) Passing(format string, encode func() ([]byte, error)) ([]byte, error) {
	enc := e.encoding(format)
	enc.making.Lock()
	defer enc.making.Unlock()
	if made := enc.passing.Value(); made != nil {
		return *made, nil
	}
	data, err := encode()
	if err != nil {
		return nil, err
	}
	enc.passing = weak.Make(&data)
	return data, nil
}

func (e *Entry) encoding(format string) *encoding {
	var made *encoding
	for {
		head := e.encodings.Load()
		for n := head; n != nil; n = n.next {
			if n.format == format {
				return n
			}
		}
		if made == nil {
			made = &encoding{format: format}
		}
		made.next = head
		if e.encodings.CompareAndSwap(head, made) {
			return made
		}
	}
}

// mark sets a flag. It reads first, since the flag is usually set.
func (e *Entry) mark(used uint32) {
	if e.flags.Load()&used == 0 {
		e.flags.Or(used)
	}
}

// dropUnused drops the forms that were not used since the last call. It keeps the object if keep
// says that readers scan all objects again and again.
func (e *Entry) dropUnused(keep bool) {
	if e.schema == nil { // an entry of a Feed has no bytes to decode
		return
	}
	used := e.flags.Load()
	if used&(objectUsed|formsUsed) != 0 {
		e.flags.And(^(objectUsed | formsUsed))
	}
	if used&formsUsed == 0 {
		if e.encodings.Load() != nil {
			e.encodings.Store(nil)
		}
		if e.derived.Load() != nil {
			e.derived.Store(nil)
		}
	}
	if used&objectUsed == 0 && !keep {
		e.release()
	}
}

// release drops the decoded object, which is decoded again on demand.
func (e *Entry) release() {
	if d := e.object.Load(); d != nil && d.err == nil && e.schema != nil {
		e.object.Store(nil)
	}
}

// dropForms drops the forms of an entry that only the log holds. Readers with a reference keep
// theirs; others make them again.
func (e *Entry) dropForms() {
	if e.schema == nil { // an entry of a Feed has no bytes to decode
		return
	}
	e.flags.Or(replaced)
	e.object.Store(nil)
	e.encodings.Store(nil)
	e.derived.Store(nil)
}

// Restamp returns the entry's last state with the revision of its deletion, which a watcher gets
// with Deleted.
func (e *Entry) Restamp(revision int64) *Entry {
	g := &Entry{Header: e.Header, Key: e.Key, Revision: revision, stored: e.stored, packed: e.packed, schema: e.schema}
	if e.schema == nil { // an entry of a Feed has no bytes to decode
		g.object.Store(e.object.Load())
	}
	return g
}
