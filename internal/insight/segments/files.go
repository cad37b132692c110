package segments

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxSegments bounds the number of files, as each start of a process may begin one.
const maxSegments = 512

// Options are the settings of a log.
type Options struct {
	Dir string // made if it does not exist
	// MaxBytes is the size on disk; 0 is the format's default.
	MaxBytes int64
	// MaxAge is how long blocks are kept; 0 is 7 days.
	MaxAge time.Duration
	// Clock returns the time; nil is time.Now.
	Clock  func() time.Time
	Logger *slog.Logger // nil is slog.Default()
}

// Format describes the segments of a log.
type Format struct {
	Log    string // the log's name in messages, such as "the causal log"
	Suffix string // of file names
	Magic  string // begins each segment; names the version of the format
	// Older are magics of older versions, of the same length. Their segments are read only.
	Older []string
	Head  int // length of the head
	// MaxBytes is the default of Options. MostSegment bounds the size of a segment.
	MaxBytes, MostSegment int64
	// Began returns when a segment began; nil takes the file's time.
	Began func(head []byte) time.Time
	// Whole returns where the last whole block of a segment ends.
	Whole func(s *Segment, r io.ReaderAt) (end int64, err error)
}

// Segment is one file, as it was at one moment.
type Segment struct {
	Path  string
	Size  int64 // up to the end of the last whole block
	Head  []byte
	Ended bool // no more blocks will follow

	number      int64
	began, last time.Time // of this process, or of the file
	memo        *memo
	older       bool // of an older version
	foreign     bool // of an unknown format: kept, but neither read nor continued
}

type memo struct {
	sync.Mutex
	value any
}

// Files are the segments of a log. One goroutine calls Begin, Append and End; View is safe for
// concurrent use.
type Files struct {
	Options
	format Format
	most   int64 // bytes of a segment

	mu   sync.Mutex
	list []*Segment // oldest first; only the last one may be written
	file *os.File   // of the last segment if it is being written; used by the writer only
}

// Open finds the segments of a folder and cuts the torn end of the newest one. A segment of an
// unknown format, such as a newer program's, stays until it is beyond the bounds; one line tells of
// each such format. A file that ends within its head is removed.
func Open(format Format, opts Options) (*Files, error) {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = format.MaxBytes
	}
	if opts.MaxAge == 0 {
		opts.MaxAge = 7 * 24 * time.Hour
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	f := &Files{Options: opts, format: format, most: min(max(opts.MaxBytes/32, 64<<10), format.MostSegment)}
	err := os.MkdirAll(opts.Dir, 0o700)
	if err == nil {
		err = f.find()
	}
	if n := len(f.list); err == nil && n > 0 && !f.list[n-1].foreign {
		err = f.cutTorn(f.list[n-1])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", format.Log, err)
	}
	return f, nil
}

func (f *Files) name(number int64) string { return fmt.Sprintf("%016d.%s", number, f.format.Suffix) }

// find lists the segments of the folder.
func (f *Files) find() error {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return err
	}
	unknown := map[string][]*Segment{}
	for _, entry := range entries {
		s := &Segment{Path: filepath.Join(f.Dir, entry.Name()), Ended: true, memo: &memo{}}
		_, err := fmt.Sscanf(entry.Name(), "%d.", &s.number)
		if err != nil || entry.Name() != f.name(s.number) || !entry.Type().IsRegular() {
			continue
		}
		magic, err := f.readHead(s)
		switch {
		case err != nil:
		case magic == "":
			f.Logger.Warn("a file is no segment of "+f.format.Log+", and is removed", "file", s.Path, "bytes", s.Size)
			err = os.Remove(s.Path)
		default:
			f.list = append(f.list, s)
			if s.foreign {
				unknown[magic] = append(unknown[magic], s)
			}
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(f.list, func(a, b *Segment) int { return strings.Compare(a.Path, b.Path) })
	for _, magic := range slices.Sorted(maps.Keys(unknown)) {
		list := unknown[magic]
		f.Logger.Warn("segments of "+f.format.Log+" have an unknown format: they are kept, and not read",
			"file", list[0].Path, "format", magic, "segments", len(list), "known", f.format.Magic)
	}
	return nil
}

// readHead reads a segment's head and size. It returns the segment's magic, or "" if the file ends
// within the head.
func (f *Files) readHead(s *Segment) (magic string, err error) {
	r, err := os.Open(s.Path)
	if err != nil {
		return "", err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return "", err
	}
	s.Size, s.began, s.last = info.Size(), info.ModTime(), info.ModTime()
	head := make([]byte, len(f.format.Magic)+f.format.Head)
	n, err := r.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return "", err
	}
	if n < len(f.format.Magic) {
		return "", nil
	}
	magic = string(head[:len(f.format.Magic)])
	s.older = slices.Contains(f.format.Older, magic)
	if s.foreign = !s.older && magic != f.format.Magic; s.foreign {
		return magic, nil
	}
	if n < len(head) {
		return "", nil
	}
	if s.Head = head[len(f.format.Magic):]; f.format.Began != nil {
		s.began = f.format.Began(s.Head)
	}
	return magic, nil
}

// cutTorn removes the bytes after the last whole block. A killed process leaves such bytes.
func (f *Files) cutTorn(s *Segment) error {
	r, err := os.OpenFile(s.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	end, err := f.format.Whole(s, r)
	if err != nil || end == s.Size {
		return err
	}
	s.Size = end
	return r.Truncate(end)
}

// IsFull reports whether a block of that size needs a new segment: none is being written, or the
// present one is large or old.
func (f *Files) IsFull(size int) bool {
	if f.file == nil {
		return true
	}
	s := f.list[len(f.list)-1]
	return s.Size+int64(size) > f.most || f.Clock().Sub(s.began) > f.MaxAge/28+time.Second
}

// Begin ends the present segment, removes the oldest ones beyond the bounds, and begins a new one.
func (f *Files) Begin(head []byte) error {
	f.End()
	f.Prune()
	number := int64(1)
	if n := len(f.list); n > 0 {
		number = f.list[n-1].number + 1
	}
	path := filepath.Join(f.Dir, f.name(number))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := file.Write(append([]byte(f.format.Magic), head...)); err != nil {
		return errors.Join(err, file.Close(), os.Remove(path))
	}
	now := f.Clock()
	f.mu.Lock()
	f.list = append(f.list, &Segment{
		Path: path, Size: int64(len(f.format.Magic) + len(head)), Head: slices.Clone(head), number: number, began: now, last: now, memo: &memo{},
	})
	f.file = file
	f.mu.Unlock()
	return nil
}

// Resume writes on in the newest segment, if there is one of this version.
func (f *Files) Resume() error {
	if f.file != nil || len(f.list) == 0 {
		return nil
	}
	s := f.list[len(f.list)-1]
	if s.older || s.foreign {
		return nil
	}
	file, err := os.OpenFile(s.Path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	f.mu.Lock()
	s.Ended, f.file = false, file
	f.mu.Unlock()
	return nil
}

// Append writes a block to the present segment. After an error the segment has none of it, or is
// ended.
func (f *Files) Append(block []byte) error {
	s := f.list[len(f.list)-1]
	if n, err := f.file.Write(block); err != nil {
		if n > 0 && f.file.Truncate(s.Size) != nil {
			f.End()
		}
		return err
	}
	f.mu.Lock()
	s.Size += int64(len(block))
	s.last = f.Clock()
	f.mu.Unlock()
	return nil
}

// End closes the present segment, if there is one.
func (f *Files) End() {
	if f.file == nil {
		return
	}
	if err := f.file.Close(); err != nil {
		f.Logger.Warn(f.format.Log+" is not written", "err", err)
	}
	f.mu.Lock()
	f.list[len(f.list)-1].Ended, f.file = true, nil
	f.mu.Unlock()
}

// Prune removes the oldest segments beyond the bounds. It is called between two segments.
func (f *Files) Prune() {
	now := f.Clock()
	f.removeWhile(func(oldest *Segment, total int64, count int) bool {
		return total+f.most > f.MaxBytes || count >= maxSegments || now.Sub(oldest.last) > f.MaxAge
	})
}

// Clear removes all segments.
func (f *Files) Clear() {
	f.End()
	f.removeWhile(func(*Segment, int64, int) bool { return true })
}

func (f *Files) removeWhile(excess func(oldest *Segment, total int64, count int) bool) {
	total := f.Bytes()
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.list) > 0 && excess(f.list[0], total, len(f.list)) {
		if err := os.Remove(f.list[0].Path); err != nil && !Gone(err) {
			f.Logger.Warn("cannot remove an old segment of "+f.format.Log, "err", err)
			return
		}
		if f.list[0].foreign {
			f.Logger.Warn("a segment of an unknown format was beyond the bounds of "+f.format.Log+", and is removed", "file", f.list[0].Path)
		}
		total -= f.list[0].Size
		f.list = f.list[1:]
	}
}

// Bytes returns the size on disk.
func (f *Files) Bytes() (total int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.list {
		total += s.Size
	}
	return total
}

// View returns the segments of known formats, oldest first.
func (f *Files) View() []Segment {
	f.mu.Lock()
	defer f.mu.Unlock()
	view := make([]Segment, 0, len(f.list))
	for _, s := range f.list {
		if !s.foreign {
			view = append(view, *s)
		}
	}
	return view
}

// Open opens the segment for reading up to its Size. It may be Gone.
func (s *Segment) Open() (*Reader, error) {
	f, err := os.Open(s.Path)
	if err != nil {
		return nil, err
	}
	return &Reader{SectionReader: io.NewSectionReader(f, 0, s.Size), Closer: f}, nil
}

// Reader reads a segment.
type Reader struct {
	*io.SectionReader
	io.Closer
}

// Read returns the segment's bytes. It refuses a file that no writer of the log would make.
func (s *Segment) Read(limit int64) ([]byte, error) {
	if s.Size > limit {
		return nil, fmt.Errorf("segment %s has more than %d bytes", s.Path, limit)
	}
	r, err := s.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Gone reports whether a segment was removed while it was read.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Memo returns a value about the segment, such as an index, and keeps it if the segment is ended.
func Memo[T any](s *Segment, read func() (T, error)) (T, error) {
	s.memo.Lock()
	defer s.memo.Unlock()
	if value, ok := s.memo.value.(T); ok {
		return value, nil
	}
	value, err := read()
	if err == nil && s.Ended {
		s.memo.value = value
	}
	return value, err
}
