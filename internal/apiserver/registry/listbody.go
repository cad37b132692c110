package registry

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/cache"
)

// ListBody is a list as it goes over the wire.
type ListBody struct {
	head, tail []byte
	items      listItems
}

// laneMinBytes is the size in bytes from which a list uses one of the server's lanes. Smaller lists
// end before they delay others, and a lane would cost them two fifths of their throughput on two
// CPUs.
const laneMinBytes = 32 << 20

// listItems are encoded from their entries piece by piece while they are written, unless all is
// set. Fifty whole lists of a hundred thousand pods would take gigabytes.
type listItems struct {
	size    int
	shared  *sharedItems
	entries []*cache.Entry // used if all is nil
	form    itemForm
	lanes   *taskpool.Lanes
}

// itemForm encodes an entry as an item.
type itemForm struct {
	encoding func(*cache.Entry) ([]byte, error)
	// before appends the bytes that precede an item of the given size.
	before func(b []byte, size int, first bool) []byte
}

// pieceBytes is how much of a body is written at a time. Other lists get their turn before each
// piece: a write that arrives while fifty lists are being sent waits for one piece of one list.
const pieceBytes = 64 << 10

var pieceBuffers = sync.Pool{New: func() any { b := make([]byte, 0, pieceBytes+pieceBytes/4); return &b }}

// wholeBody returns a body that is one document.
func wholeBody(doc []byte, err error) (*ListBody, error) { return &ListBody{head: doc}, err }

// Size returns the size of the body in bytes.
func (l *ListBody) Size() int { return len(l.head) + l.items.size + len(l.tail) }

// items returns the page's items in a form. A page of all objects shares them with other requests.
func (e *Endpoint) items(p *Page, name string, form itemForm) (listItems, error) {
	if e.Custom != nil { // the form of a custom object can change though the object does not
		p = &Page{Entries: p.Entries}
	}
	all, list, together := e.sharedLists.find(name, p, time.Now())
	if all != nil {
		return listItems{size: len(all.plain), shared: all, lanes: e.Shared.Lanes}, nil
	}
	if together {
		defer func() { list.keep(p.Changed, all) }()
	}
	items := listItems{entries: p.Entries, form: form, lanes: e.Shared.Lanes}
	if err := items.measure(e.Shared.TurnsFor(len(p.Entries))); err != nil {
		return items, err
	}
	most := laneMinBytes
	if p.Zipped {
		most = maxSharedBytes
	}
	if !together || items.size >= most {
		return items, nil
	}
	plain := make([]byte, 0, items.size)
	if err := items.each(func(piece []byte) error { plain = append(plain, piece...); return nil }); err != nil {
		return items, err
	}
	all = &sharedItems{plain: plain}
	return listItems{size: len(plain), shared: all, lanes: items.lanes}, nil
}

// A list of a kind with many objects takes turns with other lists after each objectsPerTurn
// objects. A page or a small namespace ends within its first turn.
const (
	ManyObjects    = 10000
	objectsPerTurn = 500
)

// TurnsFor returns the turns for work on the given number of objects.
func (s *Shared) TurnsFor(objects int) taskpool.Turns {
	if objects < ManyObjects {
		return taskpool.Turns{}
	}
	return s.Lanes.Turns(objectsPerTurn)
}

// measure computes the size, and so encodes entries that have no encoding yet.
func (i *listItems) measure(turns taskpool.Turns) error {
	defer turns.End()
	var before [16]byte
	for k, entry := range i.entries {
		turns.Step()
		raw, err := i.form.encoding(entry)
		if err != nil {
			return err
		}
		i.size += len(i.form.before(before[:0], len(raw), k == 0)) + len(raw)
	}
	return nil
}

// each calls fn for one piece of the items after the other. A piece is valid until fn returns.
func (i *listItems) each(fn func(piece []byte) error) error {
	if i.shared != nil {
		if i.size < laneMinBytes {
			return fn(i.shared.plain)
		}
		for rest := i.shared.plain; len(rest) > 0; {
			n := min(len(rest), pieceBytes)
			if err := i.withLane(func() error { return fn(rest[:n]) }); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	}
	buffer := pieceBuffers.Get().(*[]byte)
	defer pieceBuffers.Put(buffer)
	for k := 0; k < len(i.entries); {
		err := i.withLane(func() (err error) {
			if *buffer, k, err = i.piece((*buffer)[:0], k); err != nil {
				return err
			}
			return fn(*buffer)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// piece appends items from the k-th on until they fill a piece, and returns the index of the next
// item.
func (i *listItems) piece(b []byte, k int) ([]byte, int, error) {
	for ; k < len(i.entries) && len(b) < pieceBytes; k++ {
		raw, err := i.form.encoding(i.entries[k])
		if err != nil {
			return b, k, err
		}
		b = append(i.form.before(b, len(raw), k == 0), raw...)
	}
	return b, k, nil
}

// withLane calls fn on this list's turn.
func (i *listItems) withLane(fn func() error) error {
	if i.size >= laneMinBytes {
		defer i.lanes.Take()()
	}
	return fn()
}

// SendTo writes the whole body.
func (l *ListBody) SendTo(w io.Writer) error {
	write := func(b []byte) error {
		_, err := w.Write(b)
		return err
	}
	if err := write(l.head); err != nil {
		return err
	}
	if err := l.items.each(write); err != nil || len(l.tail) == 0 {
		return err
	}
	return write(l.tail)
}

// Bytes returns the whole body.
func (l *ListBody) Bytes() ([]byte, error) {
	var out bytes.Buffer
	out.Grow(l.Size())
	err := l.SendTo(&out)
	return out.Bytes(), err
}
