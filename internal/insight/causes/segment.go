package causes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A segment begins with magic. Blocks follow: the length and the CRC-32C of the payload, four bytes
// each in big endian, then the payload, which is whole Records. The decoder's state goes on from
// block to block. A reader stops at the first block that is not whole.
const (
	magic       = "knarrcl1"
	blockHead   = 8
	maxBlock    = 256 << 10
	segmentName = "%016d.causes"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segment is one file.
type segment struct {
	path   string
	number int64

	mu   sync.Mutex
	size int64
	// about is the index, which is made when the segment is first read after its end; nil before.
	about *about
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

// listSegments finds the segments of a folder, oldest first.
func listSegments(dir string) ([]*segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []*segment
	for _, entry := range entries {
		var number int64
		if _, err := fmt.Sscanf(entry.Name(), segmentName, &number); err != nil || entry.Name() != fmt.Sprintf(segmentName, number) {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		list = append(list, &segment{path: filepath.Join(dir, entry.Name()), number: number, size: info.Size()})
	}
	slices.SortFunc(list, func(a, b *segment) int { return strings.Compare(a.path, b.path) })
	return list, nil
}

// each decodes the Records of the segment in order until fn returns false. A Record is valid during
// the call only. A torn or damaged end is no error: the Records before it are whole.
func (s *segment) each(limit int64, fn func(*Record) bool) error {
	data, err := s.read(limit)
	if err != nil {
		return err
	}
	_, err = eachRecord(data, fn)
	return err
}

// read returns the segment's bytes. It refuses a file that no writer of ours would make.
func (s *segment) read(limit int64) ([]byte, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("segment %s has more than %d bytes", s.path, limit)
	}
	return data, err
}

// eachRecord is each for bytes. It returns the length of the whole blocks.
func eachRecord(data []byte, fn func(*Record) bool) (whole int64, err error) {
	if len(data) < len(magic) || string(data[:len(magic)]) != magic {
		return 0, nil
	}
	whole = int64(len(magic))
	var d decoder
	var r Record
	for {
		rest := data[whole:]
		if len(rest) < blockHead {
			return whole, nil
		}
		size := int64(binary.BigEndian.Uint32(rest))
		if size == 0 || size > maxBlock || size > int64(len(rest)-blockHead) {
			return whole, nil
		}
		d.buf = rest[blockHead : blockHead+size]
		if crc32.Checksum(d.buf, castagnoli) != binary.BigEndian.Uint32(rest[4:]) {
			return whole, nil
		}
		for len(d.buf) > 0 {
			if err := d.next(&r); err != nil {
				return whole, err
			}
			if !fn(&r) {
				return whole, nil
			}
		}
		whole += blockHead + size
	}
}

// index makes the index of the segment, or returns the one made before. kept says that the segment
// is ended, so that the index stays true.
func (s *segment) index(limit int64, kept bool) (*about, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.about != nil {
		return s.about, nil
	}
	a := &about{}
	seen := map[uint32]bool{}
	err := s.each(limit, func(r *Record) bool {
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
	if err != nil && !errors.Is(err, errMalformed) {
		return nil, err
	}
	a.objects = make([]uint32, 0, len(seen))
	for h := range seen {
		a.objects = append(a.objects, h)
	}
	slices.Sort(a.objects)
	if kept {
		s.about = a
	}
	return a, nil
}

// cutTorn removes what follows the last whole block, which a killed process leaves.
func (s *segment) cutTorn(limit int64) error {
	data, err := s.read(limit)
	if err != nil {
		return err
	}
	whole, _ := eachRecord(data, func(*Record) bool { return true })
	if whole == int64(len(data)) {
		return nil
	}
	s.size = whole
	return os.Truncate(s.path, whole)
}
