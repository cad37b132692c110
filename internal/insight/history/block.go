package history

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/knarr-project/knarr/internal/insight/segments"
)

// A block is a header, marks and a payload. All numbers are in big endian:
//
//	 0  length of the payload, 4 bytes
//	 4  length of the payload when decompressed, 4 bytes; 0 for a block that only has the position
//	 8  CRC-32C of the payload, 4 bytes
//	12  number of marks, 4 bytes
//	16  revision of the first entry, 8 bytes
//	24  position, 8 bytes
//	32  time of the first and of the last entry, 8 bytes each, in microseconds
//	48  CRC-32C of the header before this and of the marks, 4 bytes
//	52  marks, 4 bytes each, in ascending order
//
// A mark is the hash of a kind, a namespace or a key that the block has.
const (
	headSize = 52
	// blockSize is the size, decompressed, from which on a block is written.
	blockSize = 256 << 10
	maxRaw    = 8 << 20 // a block ends after the entry that exceeds blockSize
	maxMarks  = 1 << 16
	// maxWhole is the size of all states, without deltas, from which on a block is written. It
	// bounds the memory of its writer and readers.
	maxWhole = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header describes a block.
type header struct {
	size, rawSize       uint32
	sum                 uint32
	first, position     int64
	firstTime, lastTime int64 // microseconds
	marks               []uint32
}

// length is the block's size in the file.
func (h *header) length() int64 { return headSize + 4*int64(len(h.marks)) + int64(h.size) }

func (h *header) append(buf []byte) []byte {
	start := len(buf)
	for _, n := range []uint32{h.size, h.rawSize, h.sum, uint32(len(h.marks))} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	for _, n := range []int64{h.first, h.position, h.firstTime, h.lastTime} {
		buf = binary.BigEndian.AppendUint64(buf, uint64(n))
	}
	marks := make([]byte, 0, 4*len(h.marks))
	for _, m := range h.marks {
		marks = binary.BigEndian.AppendUint32(marks, m)
	}
	sum := crc32.Update(crc32.Checksum(buf[start:], castagnoli), castagnoli, marks)
	return append(binary.BigEndian.AppendUint32(buf, sum), marks...)
}

// readHeader reads the header at an offset. The error is io.EOF if the file ends there, and
// segments.ErrMalformed if no whole header is there.
func readHeader(r io.ReaderAt, at int64) (*header, error) {
	var fixed [headSize]byte
	if n, err := r.ReadAt(fixed[:], at); n < headSize {
		if n == 0 && err == io.EOF {
			return nil, io.EOF
		}
		return nil, cut(err)
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(fixed[i:]) }
	long := func(i int) int64 { return int64(binary.BigEndian.Uint64(fixed[i:])) }
	h := &header{size: word(0), rawSize: word(4), sum: word(8), first: long(16), position: long(24), firstTime: long(32), lastTime: long(40)}
	n := word(12)
	if n > maxMarks || h.rawSize > maxRaw || h.size > 2*maxRaw {
		return nil, fmt.Errorf("%w: its header", segments.ErrMalformed)
	}
	marks := make([]byte, 4*n)
	if got, err := r.ReadAt(marks, at+headSize); got < len(marks) {
		return nil, cut(err)
	}
	if crc32.Update(crc32.Checksum(fixed[:48], castagnoli), castagnoli, marks) != word(48) {
		return nil, fmt.Errorf("%w: the checksum of its header", segments.ErrMalformed)
	}
	h.marks = make([]uint32, n)
	for i := range h.marks {
		h.marks[i] = binary.BigEndian.Uint32(marks[4*i:])
	}
	return h, nil
}

// cut turns the end of a file within a block into ErrMalformed.
func cut(err error) error {
	if err == io.EOF {
		return fmt.Errorf("%w: it ends early", segments.ErrMalformed)
	}
	return err
}

// payload reads and checks the block's payload.
func (h *header) payload(r io.ReaderAt, at int64) ([]byte, error) {
	packed := make([]byte, h.size)
	if n, err := r.ReadAt(packed, at+headSize+4*int64(len(h.marks))); n < len(packed) {
		return nil, cut(err)
	}
	if crc32.Checksum(packed, castagnoli) != h.sum {
		return nil, fmt.Errorf("%w: its checksum", segments.ErrMalformed)
	}
	return packed, nil
}

// read returns the block's entries, decompressed.
func (h *header) read(r io.ReaderAt, at int64) ([]byte, error) {
	if h.rawSize == 0 {
		return nil, nil
	}
	packed, err := h.payload(r, at)
	if err != nil {
		return nil, err
	}
	raw, err := decompress(packed)
	if err == nil && len(raw) != int(h.rawSize) {
		err = fmt.Errorf("%d bytes instead of %d", len(raw), h.rawSize)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", segments.ErrMalformed, err)
	}
	return raw, nil
}

// has reports whether the block may have entries with the mark; 0 stands for any entry.
func (h *header) has(mark uint32) bool {
	if mark == 0 {
		return true
	}
	_, found := slices.BinarySearch(h.marks, mark)
	return found
}

// gapMark marks blocks with gaps.
var gapMark = hash('g', "")

func kindMark(kind string) uint32           { return hash('k', kind) }
func namespaceMark(namespace string) uint32 { return hash('n', namespace) }
func keyMark(key string) uint32             { return hash('o', key) }

// hash is never 0. It is part of the format.
func hash(what byte, text string) uint32 {
	return max(1, crc32.Update(crc32.Checksum([]byte{what}, castagnoli), castagnoli, []byte(text)))
}

func micros(t time.Time) int64 { return t.UnixMicro() }

var decoderOnce = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxRaw))
})

func decompress(packed []byte) ([]byte, error) {
	d, err := decoderOnce()
	if err != nil {
		return nil, err
	}
	return d.DecodeAll(packed, nil)
}

func newCompressor() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(blockSize))
}
