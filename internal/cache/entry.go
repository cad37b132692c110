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

// Entry is one object at one revision. Immutable; what is derived is made once on first need.
type Entry struct {
	Header
	Key      string
	Revision int64

	stored []byte // nil when packed
	packed *place // where the stored bytes are, of a state that only the log still has

	schema    *Schema
	object    atomic.Pointer[decoded]
	encodings atomic.Pointer[encoding]
	derived   atomic.Pointer[derivation]

	flags atomic.Uint32
}

// Flags of an entry.
const (
	objectUsed uint32 = 1 << iota // since the last call of fade
	formsUsed                     // likewise
	replaced                      // by a newer entry: encodings are not kept any more
)

// derivation is an object made from the entry's, in a list as encodings are.
type derivation struct {
	name   string
	next   *derivation
	object runtime.Object
}

type decoded struct {
	object runtime.Object
	err    error
}

// encoding is one form of an entry, in a list: most entries have one, few more than two.
type encoding struct {
	format string
	next   *encoding
	making sync.Mutex
	made   atomic.Pointer[[]byte]
	// passing is guarded by making.
	passing weak.Pointer[[]byte]
}

// newEntry makes the entry of a stored key and reads its header. It has the object that was decoded for that, until release or fade.
func newEntry(schema *Schema, kv *store.KeyValue) *Entry {
	e := &Entry{Key: kv.Key, Revision: kv.ModRevision, stored: kv.Value, schema: schema}
	obj, err := schema.Decode(kv.Value, kv.ModRevision)
	if err != nil {
		// It is there, under the names that its key has; whoever asks for the object gets the error.
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

// shareKey makes the names parts of the key instead of strings of their own.
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

// maxMissing is how many of an entry's parts may be looked for in vain: each time all that is left of the stored bytes is gone through.
const maxMissing = 16

// finder finds parts in the stored bytes, where they are one after the other: an object has room for tens of thousands, which are not each looked
// for from the beginning.
type finder struct {
	in      []byte
	missing int
}

// next is the part in the stored bytes, nil if it is not in what follows the one found last.
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

// text is next for strings; what is not found stays as it is.
func (f *finder) text(s string) string {
	if found := f.next(unsafe.Slice(unsafe.StringData(s), len(s))); found != nil {
		return unsafe.String(&found[0], len(found)) // the bytes are never modified
	}
	return s
}

// shareStored makes the header's strings parts of the stored bytes, in which they are anyway unless escaped or encrypted.
func (e *Entry) shareStored() {
	e.UID = (&finder{in: e.stored}).text(e.UID)
	for i, pair := range e.Fields { // a few, in the kind's order
		e.Fields[i] = Pair{(&finder{in: e.stored}).text(pair.Name), (&finder{in: e.stored}).text(pair.Value)}
	}
	labels := finder{in: e.stored} // sorted, as they are stored
	for i, pair := range e.Labels {
		e.Labels[i] = Pair{labels.text(pair.Name), labels.text(pair.Value)}
	}
}

// shareOwners makes what a decoded object says of its fields' owners, a third of it, parts of the stored bytes.
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

// Stored is the object as it is in the store, shared: never to be modified.
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

// Object is the decoded object, shared and read-only.
func (e *Entry) Object() (runtime.Object, error) {
	e.mark(objectUsed)
	if d := e.object.Load(); d != nil {
		return d.object, d.err
	}
	obj, err := e.schema.Decode(e.Stored(), e.Revision)
	// Whoever decodes at the same time gets the same object.
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

// Derived is another object made from the entry's object under a name chosen by the caller ("metadata", "v2"), made once and
// kept, shared and read-only. The entry's own object is not kept for it. An error is not kept: what derive needs (a conversion webhook)
// may be there the next time.
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

// Peek is the object if it is kept, else one decoded for the caller alone. It may be shared: read-only.
func (e *Entry) Peek() (runtime.Object, error) {
	if d := e.object.Load(); d != nil {
		return d.object, d.err
	}
	return e.schema.Decode(e.Stored(), e.Revision)
}

// Encoded is the object's encoding under a name chosen by the caller ("v1+json"), made once by encode and kept while it is used.
// The bytes are shared: never modify them. The object is not kept for it.
func (e *Entry) Encoded(format string, encode func(runtime.Object) ([]byte, error)) ([]byte, error) {
	return e.EncodedBy(format, func() ([]byte, error) {
		obj, err := e.Peek()
		if err != nil {
			return nil, err
		}
		return encode(obj)
	})
}

// EncodedBy is Encoded for an encoding of something else than the entry's own object (of a derived one). An error is not kept.
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

// EncodedOnce is EncodedBy for what is put into something else that is shared (the frame of a watch event): an encoding that is there is used, and
// none is kept.
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

// Passing is EncodedBy for what many want at the same moment and nobody later (the frame of a watch event): it is kept only until the
// garbage collector comes by.
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

// mark sets a flag that many read and few find unset.
func (e *Entry) mark(used uint32) {
	if e.flags.Load()&used == 0 {
		e.flags.Or(used)
	}
}

// fade drops what was made of the stored bytes and not used since the last call: the object too, unless keep says that there are readers of it
// which look at all objects again and again.
func (e *Entry) fade(keep bool) {
	if e.schema == nil { // of a Feed: nothing can be made again
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

// release drops the decoded object: it is decoded again when somebody asks.
func (e *Entry) release() {
	if d := e.object.Load(); d != nil && d.err == nil && e.schema != nil {
		e.object.Store(nil)
	}
}

// cool drops what was made of the stored bytes of an entry that is only in the log. Readers that have it keep it; others have it made again.
func (e *Entry) cool() {
	if e.schema == nil { // of a Feed: nothing can be made again
		return
	}
	e.flags.Or(replaced)
	e.object.Store(nil)
	e.encodings.Store(nil)
	e.derived.Store(nil)
}

// Restamp is the entry's last state as of the revision at which it went: what a watcher gets with Deleted.
func (e *Entry) Restamp(revision int64) *Entry {
	g := &Entry{Header: e.Header, Key: e.Key, Revision: revision, stored: e.stored, packed: e.packed, schema: e.schema}
	if e.schema == nil { // of a Feed: there are no bytes to decode again
		g.object.Store(e.object.Load())
	}
	return g
}
