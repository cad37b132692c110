package segments

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed is the error of bytes that no log has written.
var ErrMalformed = errors.New("malformed block of a log")

// Decoder reads from the beginning of Buf, and removes the bytes that it has read. All errors are
// ErrMalformed.
type Decoder struct{ Buf []byte }

// Take returns the next n bytes.
func (d *Decoder) Take(n uint64) ([]byte, error) {
	if n > uint64(len(d.Buf)) {
		return nil, fmt.Errorf("%w: it ends early", ErrMalformed)
	}
	out := d.Buf[:n:n]
	d.Buf = d.Buf[n:]
	return out, nil
}

// Bytes returns bytes with their length before them, which is at most most.
func (d *Decoder) Bytes(most uint64) ([]byte, error) {
	n, err := d.Uvarint()
	if err == nil && n > most {
		err = fmt.Errorf("%w: %d bytes", ErrMalformed, n)
	}
	if err != nil {
		return nil, err
	}
	return d.Take(n)
}

// Uvarint reads an unsigned number.
func (d *Decoder) Uvarint() (uint64, error) {
	v, n := binary.Uvarint(d.Buf)
	if n <= 0 {
		return 0, fmt.Errorf("%w: a number", ErrMalformed)
	}
	d.Buf = d.Buf[n:]
	return v, nil
}

// Varint reads a number whose negative is one, too.
func (d *Decoder) Varint() (int64, error) {
	v, n := binary.Varint(d.Buf)
	if n <= 0 || v == math.MinInt64 {
		return 0, fmt.Errorf("%w: a number", ErrMalformed)
	}
	d.Buf = d.Buf[n:]
	return v, nil
}

// Byte reads one byte.
func (d *Decoder) Byte() (byte, error) {
	b, err := d.Take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// Place is the revision and the time of an entry, as differences to the entry before.
type Place struct{ Revision, Micros int64 }

// Append encodes the differences, and keeps the new values.
func (p *Place) Append(buf []byte, revision, micros int64) []byte {
	buf = binary.AppendVarint(buf, revision-p.Revision)
	buf = binary.AppendVarint(buf, micros-p.Micros)
	p.Revision, p.Micros = revision, micros
	return buf
}

// Next reads the differences, and adds them.
func (p *Place) Next(d *Decoder) error {
	revision, err := d.Varint()
	if err != nil {
		return err
	}
	micros, err := d.Varint()
	if err != nil {
		return err
	}
	p.Revision += revision
	p.Micros += micros
	if p.Revision < 0 {
		return fmt.Errorf("%w: revision %d", ErrMalformed, p.Revision)
	}
	return nil
}
