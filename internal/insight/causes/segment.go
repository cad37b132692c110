package causes

import (
	"encoding/binary"
	"hash/crc32"
	"hash/maphash"
	"io"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/insight/segments"
)

// A block is the length and the CRC-32C of the payload, four bytes each in big endian, then the
// payload, which is whole Records. The decoder's state goes on from block to block.
const (
	magic       = "knarrcl1"
	blockHead   = 8
	maxBlock    = 256 << 10
	mostSegment = 1 << 20
	// readLimit bounds the memory that reading one segment takes.
	readLimit = 2*mostSegment + maxBlock + blockHead
)

var format = segments.Format{
	Log: "the causal log", Suffix: "causes", Magic: magic, MaxBytes: 64 << 20, MostSegment: mostSegment,
	Whole: func(s *segments.Segment, _ io.ReaderAt) (int64, error) {
		data, err := s.Read(readLimit)
		if err != nil {
			return 0, err
		}
		return eachBlock(data, func([]byte) bool { return true }), nil
	},
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// eachBlock calls fn with the payload of each block until fn returns false, or to the first block
// that is not whole. It returns the end of the last whole block.
func eachBlock(data []byte, fn func([]byte) bool) (end int64) {
	end = int64(len(magic))
	for {
		rest := data[min(end, int64(len(data))):]
		if len(rest) < blockHead {
			return end
		}
		size := int64(binary.BigEndian.Uint32(rest))
		if size == 0 || size > maxBlock || size > int64(len(rest)-blockHead) {
			return end
		}
		payload := rest[blockHead : blockHead+size]
		if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(rest[4:]) || !fn(payload) {
			return end
		}
		end += blockHead + size
	}
}

// each decodes the Records of a segment in order until fn returns false. A Record is valid during
// the call only. A damaged end is no error, and neither is a segment that is gone.
func each(s *segments.Segment, fn func(*Record) bool) error {
	data, err := s.Read(readLimit)
	if err != nil {
		if segments.Gone(err) {
			return nil
		}
		return err
	}
	var d decoder
	var r Record
	eachBlock(data, func(payload []byte) bool {
		for d.Buf = payload; len(d.Buf) > 0; {
			if d.next(&r) != nil || !fn(&r) {
				return false
			}
		}
		return true
	})
	return nil
}

// about is the index of a segment.
type about struct {
	first, last         int64 // revisions
	firstTime, lastTime time.Time
	// objects are the sorted hashes of its objects.
	objects []uint32
}

var seed = maphash.MakeSeed()

func (o *Object) hash() uint32 { return uint32(maphash.Comparable(seed, *o)) }

// mayHave reports whether the object may be in the segment.
func (a *about) mayHave(o *Object) bool {
	_, found := slices.BinarySearch(a.objects, o.hash())
	return found
}

// index returns the index of a segment, which is made when it is first needed. It is empty for a
// segment without Records.
func index(s *segments.Segment) (*about, error) {
	return segments.Memo(s, func() (*about, error) {
		a := &about{}
		seen := map[uint32]bool{}
		err := each(s, func(r *Record) bool {
			if a.firstTime.IsZero() {
				a.first, a.firstTime = r.Revision, r.Time
			}
			a.first, a.last = min(a.first, r.Revision), max(a.last, r.Revision)
			if r.Time.After(a.lastTime) {
				a.lastTime = r.Time
			}
			seen[r.Object.hash()] = true
			return true
		})
		if err != nil {
			return nil, err
		}
		a.objects = make([]uint32, 0, len(seen))
		for h := range seen {
			a.objects = append(a.objects, h)
		}
		slices.Sort(a.objects)
		return a, nil
	})
}
