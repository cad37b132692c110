package apiserver

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// deflated is a part of a body, compressed so that it can be joined with others into one gzip
// stream (RFC 1952): it refers to no earlier bytes, and ends on a byte boundary.
type deflated struct {
	data []byte
	sum  uint32 // CRC-32 of the uncompressed bytes
}

var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, compressAt)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// deflate compresses the bytes that body writes. last marks the end of the stream.
func deflate(size int, last bool, body func(write func([]byte) error) error) (deflated, error) {
	var out bytes.Buffer
	out.Grow(size)
	w := deflaters.Get().(*flate.Writer)
	defer func() {
		w.Reset(io.Discard) // so that the pool does not keep the result
		deflaters.Put(w)
	}()
	w.Reset(&out)
	sum := uint32(0)
	err := body(func(b []byte) error {
		sum = crc32.Update(sum, crc32.IEEETable, b)
		_, err := w.Write(b)
		return err
	})
	if err == nil && last {
		err = w.Close()
	} else if err == nil {
		err = w.Flush()
	}
	return deflated{bytes.Clone(out.Bytes()), sum}, err
}

// zipped returns the compressed items. They are compressed once for all lists that share them.
func (i *listItems) zipped() (deflated, error) {
	i.all.once.Do(func() { i.all.deflate, i.all.err = deflate(i.size/8, false, i.each) })
	return i.all.deflate, i.all.err
}

// gzipHead is the header of a gzip stream: deflate, no name, no time, unknown system (RFC 1952,
// 2.3).
var gzipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// zipTo writes the whole body, compressed.
func (l *listBody) zipTo(w io.Writer) error {
	if l.items.all == nil {
		// The compressor writes some hundred bytes at a time.
		out := bufio.NewWriterSize(w, pieceBytes)
		if err := zip(out, l.sendTo); err != nil {
			return err
		}
		return out.Flush()
	}
	part := func(b []byte) func(func([]byte) error) error {
		return func(write func([]byte) error) error { return write(b) }
	}
	head, err := deflate(len(l.head), false, part(l.head))
	if err != nil {
		return err
	}
	items, err := l.items.zipped()
	if err != nil {
		return err
	}
	tail, err := deflate(len(l.tail), true, part(l.tail))
	if err != nil {
		return err
	}
	sum := joinedSum(joinedSum(head.sum, items.sum, l.items.size), tail.sum, len(l.tail))
	end := binary.LittleEndian.AppendUint32(tail.data, sum)
	end = binary.LittleEndian.AppendUint32(end, uint32(l.size()))
	for _, b := range [][]byte{gzipHead, head.data, items.data, end} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// joinedSum returns the CRC-32 of two consecutive parts from their sums and the length of the
// second. A checksum is a polynomial over GF(2) modulo the CRC-32 polynomial; n bytes that follow
// multiply it by x^(8n).
func joinedSum(first, second uint32, length int) uint32 {
	// 1 and x^8: the highest bit is the coefficient of 1
	power, square := uint32(1)<<31, uint32(1)<<(31-8)
	for n := uint(length); n > 0; n >>= 1 {
		if n&1 != 0 {
			power = times(power, square)
		}
		square = times(square, square)
	}
	return times(power, first) ^ second
}

// times multiplies two polynomials modulo the CRC-32 polynomial.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			product ^= b
		}
		carry := b & 1
		if b >>= 1; carry != 0 {
			b ^= crc32.IEEE
		}
	}
	return product
}
