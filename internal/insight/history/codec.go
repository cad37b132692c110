package history

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/knarr-project/knarr/internal/insight/segments"
)

// The first byte of an entry has the effect in its lowest two bits, and flags. A gap is an entry of
// its own kind.
const (
	effectMask  = 3
	flagLost    = 1 << 2
	flagOmitted = 1 << 3
	flagTouched = 1 << 4
	flagGap     = 1 << 5
	flagBefore  = 1 << 6
	flagDelta   = 1 << 7 // the state is a delta of the key's state before in the block
)

const (
	maxKey     = 4 << 10
	maxTouched = 64
	// maxState bounds a state. The store takes objects of at most 1.5 MiB.
	maxState = 4 << 20
)

// encoder encodes the entries of one block. Numbers are differences to the entry before; a key that
// repeats is a number.
type encoder struct {
	place segments.Place
	keys  map[string]*known
	whole int // bytes of all states, before they became deltas
	delta []byte
}

// known is a key of a block and its newest state there.
type known struct {
	number uint64 // from 1 on
	state  []byte
}

func (e *encoder) change(buf []byte, c *Change) []byte {
	head := byte(c.Effect) & effectMask
	if c.Lost {
		head |= flagLost
	}
	if c.Omitted {
		head |= flagOmitted
	}
	if len(c.Touched) > 0 {
		head |= flagTouched
	}
	hasBefore, stored := c.BeforeRevision != 0, c.Before
	if hasBefore {
		head |= flagBefore
		if k := e.keys[c.Key]; k != nil && len(k.state) > 0 {
			if e.delta = appendDelta(e.delta[:0], k.state, c.Before); len(e.delta) < len(c.Before)/2 {
				head, stored = head|flagDelta, e.delta
			}
		}
	}
	buf = e.place.Append(append(buf, head), c.Revision, micros(c.Time))
	buf, k := e.key(buf, c.Key)
	if hasBefore {
		buf = binary.AppendVarint(buf, c.Revision-c.BeforeRevision)
		buf = appendBytes(buf, stored)
		e.whole += len(c.Before)
		k.state = c.Before
	}
	if len(c.Touched) > 0 {
		touched := c.Touched[:min(len(c.Touched), maxTouched)]
		buf = binary.AppendUvarint(buf, uint64(len(touched)))
		for _, path := range touched {
			buf = appendBytes(buf, path[:min(len(path), maxKey)])
		}
	}
	return buf
}

func (e *encoder) gap(buf []byte, g *Gap) []byte {
	buf = e.place.Append(append(buf, flagGap), g.FromRevision, micros(g.From))
	buf = binary.AppendVarint(buf, g.ToRevision)
	return binary.AppendVarint(buf, g.To.UnixMicro())
}

// key writes 0 and a new key, or the number of a known one.
func (e *encoder) key(buf []byte, key string) ([]byte, *known) {
	if k, ok := e.keys[key]; ok {
		return binary.AppendUvarint(buf, k.number), k
	}
	if e.keys == nil {
		e.keys = map[string]*known{}
	}
	k := &known{number: uint64(len(e.keys) + 1)}
	e.keys[key] = k
	return appendBytes(append(buf, 0), key), k
}

func appendBytes[T []byte | string](buf []byte, b T) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(b))), b...)
}

// decoder decodes the entries of one block.
type decoder struct {
	segments.Decoder
	place segments.Place
	keys  []decoded
	made  int // bytes of states that were deltas
}

// decoded is a key of a block and its newest state there.
type decoded struct {
	key   string
	state []byte
}

// decode calls one of the functions for each entry. Whole states are parts of raw.
func decode(raw []byte, change func(Change), gap func(Gap)) error {
	d := decoder{Decoder: segments.Decoder{Buf: raw}}
	for len(d.Buf) > 0 {
		head, err := d.Byte()
		if err == nil {
			err = d.place.Next(&d.Decoder)
		}
		if err != nil {
			return err
		}
		if head&flagGap != 0 {
			g, err := d.gap()
			if err != nil {
				return err
			}
			gap(g)
			continue
		}
		c, err := d.change(head)
		if err != nil {
			return err
		}
		change(c)
	}
	return nil
}

func (d *decoder) time() time.Time { return time.UnixMicro(d.place.Micros).UTC() }

func (d *decoder) gap() (g Gap, err error) {
	g.FromRevision, g.From = d.place.Revision, d.time()
	if g.ToRevision, err = d.Varint(); err != nil {
		return g, err
	}
	micros, err := d.Varint()
	g.To = time.UnixMicro(micros).UTC()
	return g, err
}

func (d *decoder) change(head byte) (c Change, err error) {
	c = Change{Revision: d.place.Revision, Time: d.time(), Effect: Effect(head & effectMask), Lost: head&flagLost != 0, Omitted: head&flagOmitted != 0}
	if c.Effect > Removed {
		return c, fmt.Errorf("%w: effect %d", segments.ErrMalformed, c.Effect)
	}
	k, err := d.key()
	if err != nil {
		return c, err
	}
	c.Key = k.key
	if head&flagBefore != 0 {
		back, err := d.Varint()
		if err != nil {
			return c, err
		}
		c.BeforeRevision = d.place.Revision - back
		if c.Before, err = d.Bytes(maxState); err == nil && head&flagDelta != 0 {
			c.Before, err = applyDelta(k.state, c.Before)
			if d.made += len(c.Before); d.made > maxWhole+maxState {
				err = fmt.Errorf("%w: its states have more than %d bytes", segments.ErrMalformed, maxWhole)
			}
		}
		if err != nil {
			return c, err
		}
		k.state = c.Before
	}
	if head&flagTouched == 0 {
		return c, nil
	}
	n, err := d.Uvarint()
	if err != nil || n > maxTouched {
		return c, fmt.Errorf("%w: %d touched fields", segments.ErrMalformed, n)
	}
	for range n {
		path, err := d.Bytes(maxKey)
		if err != nil {
			return c, err
		}
		c.Touched = append(c.Touched, string(path))
	}
	return c, nil
}

// key returns a pointer that is valid until the next call.
func (d *decoder) key() (*decoded, error) {
	n, err := d.Uvarint()
	if err != nil {
		return nil, err
	}
	if n > uint64(len(d.keys)) {
		return nil, fmt.Errorf("%w: key %d of %d", segments.ErrMalformed, n, len(d.keys))
	}
	if n > 0 {
		return &d.keys[n-1], nil
	}
	key, err := d.Bytes(maxKey)
	if err != nil {
		return nil, err
	}
	d.keys = append(d.keys, decoded{key: string(key)})
	return &d.keys[len(d.keys)-1], nil
}
