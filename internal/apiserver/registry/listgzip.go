package registry

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// deflated is a part of a body, compressed so that it can be joined with others into one gzip
// stream (RFC 1952): it refers to no earlier bytes, and ends on a byte boundary.
type deflated struct {
	data []byte
	sum  uint32 // CRC-32 of the uncompressed bytes
}

var deflateWriters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, wire.GzipLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// deflate compresses the bytes that body writes. last marks the end of the stream.
func deflate(size int, last bool, body func(write func([]byte) error) error) (deflated, error) {
	var out bytes.Buffer
	out.Grow(size)
	w := deflateWriters.Get().(*flate.Writer)
	defer func() {
		w.Reset(io.Discard) // so that the pool does not keep the result
		deflateWriters.Put(w)
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
	i.shared.once.Do(func() { i.shared.deflate, i.shared.err = deflate(i.size/8, false, i.each) })
	return i.shared.deflate, i.shared.err
}

// gzipHead is the header of a gzip stream: deflate, no name, no time, unknown system (RFC 1952,
// 2.3).
var gzipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// ZipTo writes the whole body, compressed.
func (l *ListBody) ZipTo(w io.Writer) error {
	if l.items.shared == nil {
		// The compressor writes some hundred bytes at a time.
		out := bufio.NewWriterSize(w, pieceBytes)
		if err := wire.GzipTo(out, l.SendTo); err != nil {
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
	sum := combineCRC(combineCRC(head.sum, items.sum, l.items.size), tail.sum, len(l.tail))
	end := binary.LittleEndian.AppendUint32(tail.data, sum)
	end = binary.LittleEndian.AppendUint32(end, uint32(l.Size()))
	for _, b := range [][]byte{gzipHead, head.data, items.data, end} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// combineCRC returns the CRC-32 of two consecutive parts from their sums and the length of the
// second. A checksum is a polynomial over GF(2) modulo the CRC-32 polynomial; n bytes that follow
// multiply it by x^(8n).
func combineCRC(first, second uint32, length int) uint32 {
	// 1 and x^8: the highest bit is the coefficient of 1
	power, square := uint32(1)<<31, uint32(1)<<(31-8)
	for n := uint(length); n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiplyCRC(power, square)
		}
		square = multiplyCRC(square, square)
	}
	return multiplyCRC(power, first) ^ second
}

// multiplyCRC multiplies two polynomials modulo the CRC-32 polynomial.
func multiplyCRC(a, b uint32) (product uint32) {
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
