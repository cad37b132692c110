package cache

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/klauspost/compress/zstd"
)

// packBytes is the number of stored bytes compressed together. States of a kind are similar, so
// larger packs compress better. But a reader of one state decompresses the whole pack, and the log
// is locked during compression.
const packBytes = 32 << 10

// pack holds the compressed bytes of states that only the log holds (ADR 32).
type pack struct {
	compressed []byte
	size       int // uncompressed

	mu sync.Mutex // guards opened
	// Decompressed bytes while they are read, until the next garbage collection at most.
	opened weak.Pointer[[]byte]
}

// place is the position of one state's bytes in a pack.
type place struct {
	pack     *pack
	from, to int
}

// held returns the state's share of the pack's compressed size.
func (p *place) held() int { return (p.to - p.from) * len(p.pack.compressed) / p.pack.size }

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(64<<10))
	if err != nil {
		panic("cache: options of the encoder: " + err.Error())
	}
	return e
})

var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		panic("cache: options of the decoder: " + err.Error())
	}
	return d
})

// open returns the decompressed content of the pack.
func (p *pack) open() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if all := p.opened.Value(); all != nil {
		return *all
	}
	all, err := zstdDecoder().DecodeAll(p.compressed, nil)
	if err != nil {
		panic("cache: cannot decompress a pack of this process: " + err.Error())
	}
	p.opened = weak.Make(&all)
	return all
}

// scratch holds the temporary buffers of a compression.
type scratch struct{ raw, compressed []byte }

var packing = sync.Pool{New: func() any { return &scratch{raw: make([]byte, 0, 2*packBytes)} }}

// pack compresses the old states of events first to end-1. Events and entries are immutable, and
// readers may hold them, so pack replaces them by new ones. It also replaces the same state where
// an older event shows it as new.
func (l *eventLog) pack(first, end uint64) {
	room := packing.Get().(*scratch)
	defer packing.Put(room)
	raw := room.raw[:0]
	packs := func(e *event) bool { // a state of a Feed has no stored bytes
		return e.old != nil && e.old.schema != nil && len(e.old.stored) > 0
	}
	first = max(first, l.first)
	for n := first; n < end; n++ {
		if e := l.at(n); packs(e) {
			raw = append(raw, e.old.stored...)
		}
	}
	if len(raw) == 0 {
		return
	}
	room.compressed = zstdEncoder().EncodeAll(raw, room.compressed[:0])
	p := &pack{compressed: bytes.Clone(room.compressed), size: len(raw)}
	if cap(raw) <= 4*packBytes {
		room.raw = raw
	}
	from := 0
	for n := first; n < end; n++ {
		if e := l.at(n); packs(e) {
			to := from + len(e.old.stored)
			l.replace(n, e, &place{pack: p, from: from, to: to})
			from = to
		}
	}
}

// replace replaces the old state of event n by its packed form.
func (l *eventLog) replace(n uint64, e *event, where *place) {
	var before *Entry // the state before the old one
	birth := l.find(e.old.Revision - 1)
	for ; birth < n && l.at(birth).revision == e.old.Revision && l.at(birth).new != e.old; birth++ {
	}
	born := birth < n && l.at(birth).new == e.old
	if born {
		before = l.at(birth).old
	}
	packed := &Entry{Header: l.interner.header(&e.old.Header, before), Key: e.old.Key, Revision: e.old.Revision, schema: e.old.schema, packed: where}
	packed.flags.Store(replaced)
	if born {
		b := l.at(birth)
		l.ring[birth%uint64(len(l.ring))] = &event{revision: b.revision, at: b.at, old: b.old, new: packed}
	}
	l.bytes -= held(e)
	l.ring[n%uint64(len(l.ring))] = &event{revision: e.revision, at: e.at, old: packed, new: e.new}
	l.bytes += held(l.at(n))
}

// interner interns strings that headers have in common, by hash. The strings of an entry are part
// of its stored bytes, which packing frees.
type interner struct {
	seed           maphash.Seed
	known          []string
	labels, fields Pairs // of the last state that differed from its predecessor
}

const knownWords = 256

func (w *interner) own(s string) string {
	if s == "" {
		return ""
	}
	if w.known == nil {
		w.seed, w.known = maphash.MakeSeed(), make([]string, knownWords)
	}
	known := &w.known[maphash.String(w.seed, s)%knownWords]
	if *known != s {
		*known = strings.Clone(s)
	}
	return *known
}

// header returns a copy of the header that does not refer to the stored bytes. It shares what it
// can with the state before.
func (w *interner) header(h *Header, before *Entry) Header {
	own := *h
	if before == nil || before.packed == nil {
		before = &Entry{}
	}
	if own.UID = before.UID; own.UID != h.UID {
		own.UID = strings.Clone(h.UID)
	}
	own.Labels, own.Fields = w.pairs(h.Labels, before.Labels, &w.labels), w.pairs(h.Fields, before.Fields, &w.fields)
	return own
}

// pairs returns equal pairs that can be shared: those of the state before, those made last, or a
// new copy.
func (w *interner) pairs(p, before Pairs, last *Pairs) Pairs {
	switch {
	case len(p) == 0:
		return nil
	case slices.Equal(p, before):
		return before
	case slices.Equal(p, *last):
		return *last
	}
	own := make(Pairs, len(p))
	for i, pair := range p {
		own[i] = Pair{w.own(pair.Name), w.own(pair.Value)}
	}
	*last = own
	return own
}
