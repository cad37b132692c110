package history

import (
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/knarr-project/knarr/internal/insight/segments"
)

// The head of a segment is the position and the time at which it begins, eight bytes each.
const headLength = 16

// start is the offset of a segment's first block.
const start = int64(len(magic) + headLength)

const (
	magic = "knarrhs2"
	older = "knarrhs1" // without deltas
)

var format = segments.Format{
	Log: "the history of objects", Suffix: "history", Magic: magic, Older: []string{older}, Head: headLength, MaxBytes: 256 << 20, MostSegment: 8 << 20,
	Began: func(head []byte) time.Time { _, at := parseHead(head); return at },
	Whole: func(s *segments.Segment, r io.ReaderAt) (int64, error) {
		whole := start
		err := blocks(s, r, func(p placed) bool {
			if _, err := p.payload(r, p.at); err != nil {
				return false
			}
			whole = p.at + p.length()
			return true
		})
		if errors.Is(err, segments.ErrMalformed) {
			err = nil
		}
		return whole, err
	},
}

func segmentHead(position int64, at time.Time) []byte {
	buf := binary.BigEndian.AppendUint64(make([]byte, 0, headLength), uint64(position))
	return binary.BigEndian.AppendUint64(buf, uint64(micros(at)))
}

func parseHead(head []byte) (position int64, at time.Time) {
	return int64(binary.BigEndian.Uint64(head)), time.UnixMicro(int64(binary.BigEndian.Uint64(head[8:]))).UTC()
}

// end returns the position and the time at which a segment ends.
func end(s *segments.Segment) (position int64, last time.Time, err error) {
	r, err := s.Open()
	if err != nil {
		return 0, last, err
	}
	defer r.Close()
	position, last = parseHead(s.Head)
	err = blocks(s, r, func(p placed) bool {
		position, last = p.position, time.UnixMicro(p.lastTime).UTC()
		return true
	})
	return position, last, err
}

// placed is a block's header and its offset in the file.
type placed struct {
	*header
	at int64
}

// blocks calls fn for each header of the segment in order, until fn returns false. It ends with
// ErrMalformed at a block that is not whole.
func blocks(s *segments.Segment, r io.ReaderAt, fn func(placed) bool) error {
	for at := start; at < s.Size; {
		h, err := readHeader(r, at)
		if err == io.EOF {
			return nil
		}
		if err == nil && at+h.length() > s.Size {
			err = cut(io.EOF)
		}
		if err != nil {
			return err
		}
		if !fn(placed{h, at}) {
			return nil
		}
		at += h.length()
	}
	return nil
}
