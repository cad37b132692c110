package wasm

import (
	"encoding/binary"
	"errors"
)

var errShort = errors.New("it ends too early")

// reader reads the binary format of modules. After the first error it returns zeros.
type reader struct {
	buf []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.buf = nil
}

func (r *reader) byte() byte {
	if len(r.buf) == 0 {
		r.fail(errShort)
		return 0
	}
	b := r.buf[0]
	r.buf = r.buf[1:]
	return b
}

// take returns the next n bytes.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.buf) {
		r.fail(errShort)
		return nil
	}
	b := r.buf[:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) skip(n int) { r.take(n) }

// unsigned64 reads an unsigned number in LEB128.
func (r *reader) unsigned64() uint64 {
	n, size := binary.Uvarint(r.buf)
	if size <= 0 {
		r.fail(errShort)
		return 0
	}
	r.buf = r.buf[size:]
	return n
}

func (r *reader) unsigned() uint32 {
	n := r.unsigned64()
	if n > 1<<32-1 {
		r.fail(errors.New("a number has more than 32 bits"))
		return 0
	}
	return uint32(n)
}

// signed skips a signed number in LEB128.
func (r *reader) signed() {
	for range 10 {
		if r.byte()&0x80 == 0 {
			return
		}
	}
	r.fail(errors.New("a number has more than 64 bits"))
}

// count reads the number of entries of a section; an absent section has none.
func (r *reader) count(section []byte) uint32 {
	if section == nil {
		return 0
	}
	return r.unsigned()
}

// vector reads a length and that many bytes.
func (r *reader) vector() []byte { return r.take(int(r.unsigned())) }

// limits skips the limits of a memory or table, and returns the smaller one.
func (r *reader) limits() (least uint32) {
	flags := r.byte()
	least = r.unsigned()
	if flags&1 != 0 {
		r.unsigned()
	}
	if flags > 1 {
		r.fail(errors.New("shared and 64-bit memories are not supported"))
	}
	return least
}

func appendUnsigned(out []byte, n uint64) []byte { return binary.AppendUvarint(out, n) }

// appendSigned appends a signed number as WebAssembly encodes it.
func appendSigned(out []byte, n int64) []byte {
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func appendVector(out, content []byte) []byte {
	return append(appendUnsigned(out, uint64(len(content))), content...)
}
