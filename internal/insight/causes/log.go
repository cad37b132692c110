package causes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// bufferRecords are the Records that wait for the writer: 2 MB.
	bufferRecords = 8192
	// gather is how long the writer waits for more Records after the first one. A killed process
	// loses the Records of that time.
	gather = 50 * time.Millisecond
	// maxSegments bounds the number of files, as each start of the process begins one.
	maxSegments = 512
)

// Options are the settings of a Log.
type Options struct {
	Dir string // made if it does not exist
	// MaxBytes is the size on disk; 0 is 64 MiB. MaxAge is how long Records are kept; 0 is 7 days.
	MaxBytes int64
	MaxAge   time.Duration
	// Clock returns the time for MaxAge; nil is time.Now.
	Clock  func() time.Time
	Logger *slog.Logger // nil is slog.Default()
}

// Log is the causal log of one server. Safe for concurrent use.
type Log struct {
	opts         Options
	segmentBytes int64

	mu      sync.Mutex
	waiting []Record // for the writer
	spare   []Record // the other buffer, which the writer has emptied
	closed  bool

	wake    chan struct{}
	flushes chan chan struct{}
	stop    chan struct{}
	done    chan struct{}

	// segments are all files, oldest first. The last one is being written if current is set.
	filesMu  sync.Mutex
	segments []*segment
	current  *os.File // used by the writer only; filesMu guards its being nil

	// Used by the writer only.
	encoder encoder
	block   []byte
	began   time.Time // of the current segment

	appended, dropped atomic.Int64
}

// Open opens the log in a folder and starts its writer. The existing segments are read when a
// question needs them. Call Close.
func Open(opts Options) (*Log, error) {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = 64 << 20
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
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("causal log: %w", err)
	}
	segments, err := listSegments(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("causal log: %w", err)
	}
	l := &Log{
		opts: opts, segments: segments, segmentBytes: min(max(opts.MaxBytes/32, 64<<10), 1<<20),
		wake: make(chan struct{}, 1), flushes: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go l.write()
	return l, nil
}

// Append adds a Record. It never waits for the disk: if the buffer is full, the Record is dropped.
func (l *Log) Append(r *Record) {
	r.cut()
	l.mu.Lock()
	if l.closed || len(l.waiting) >= bufferRecords {
		l.mu.Unlock()
		l.dropped.Add(1)
		return
	}
	l.waiting = append(l.waiting, *r)
	first := len(l.waiting) == 1
	l.mu.Unlock()
	if first {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Counts returns how many Records were written and how many were dropped since Open.
func (l *Log) Counts() (appended, dropped int64) { return l.appended.Load(), l.dropped.Load() }

// Close writes the waiting Records and stops the writer.
func (l *Log) Close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
	<-l.done
}

// flush returns when the Records appended before the call can be read.
func (l *Log) flush() {
	answer := make(chan struct{})
	select {
	case l.flushes <- answer:
		<-answer
	case <-l.done:
	}
}

// write is the writer's goroutine.
func (l *Log) write() {
	defer close(l.done)
	l.recover()
	for {
		select {
		case <-l.wake:
			l.await()
		case answer := <-l.flushes:
			l.drain()
			close(answer)
		case <-l.stop:
			l.drain()
			l.end()
			return
		}
	}
}

// await gathers Records for a moment, so that a busy server writes many at once.
func (l *Log) await() {
	timer := time.NewTimer(gather)
	defer timer.Stop()
	select {
	case <-timer.C:
		l.drain()
	case answer := <-l.flushes:
		l.drain()
		close(answer)
	case <-l.stop:
	}
}

// recover cuts the torn end of the newest segment and removes what is beyond the bounds.
func (l *Log) recover() {
	if n := len(l.segments); n > 0 {
		if err := l.segments[n-1].cutTorn(l.readLimit()); err != nil {
			l.opts.Logger.Warn("cannot cut the torn end of the causal log", "err", err)
		}
	}
	l.prune()
}

// readLimit bounds the memory that reading one segment takes.
func (l *Log) readLimit() int64 { return 2*l.segmentBytes + maxBlock + blockHead }

// drain writes the waiting Records.
func (l *Log) drain() {
	l.mu.Lock()
	batch := l.waiting
	l.waiting, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	for i := range batch {
		if err := l.put(&batch[i]); err != nil {
			l.fail(err, len(batch)-i)
			break
		}
	}
	if err := l.flushBlock(); err != nil {
		l.fail(err, 0)
	}
	clear(batch)
	if cap(batch) > 2048 { // a burst's memory is given back
		batch = nil
	}
	l.mu.Lock()
	l.spare = batch[:0]
	l.mu.Unlock()
}

// fail ends the current segment after an error: what it has is not known any more.
func (l *Log) fail(err error, lost int) {
	l.dropped.Add(int64(lost))
	l.opts.Logger.Warn("the causal log is not written", "err", err)
	l.block = l.block[:0]
	l.end()
}

// put encodes a Record into the present block.
func (l *Log) put(r *Record) error {
	if err := l.ensureSegment(r.Time); err != nil {
		return err
	}
	if len(l.block) == 0 {
		l.block = append(l.block, make([]byte, blockHead)...)
	}
	l.block = l.encoder.append(l.block, r)
	l.appended.Add(1)
	if len(l.block) > maxBlock-16<<10 { // a Record has less than 16 KiB
		return l.flushBlock()
	}
	return nil
}

// flushBlock writes the present block, if it has Records.
func (l *Log) flushBlock() error {
	if len(l.block) <= blockHead || l.current == nil {
		l.block = l.block[:0]
		return nil
	}
	payload := l.block[blockHead:]
	binary.BigEndian.PutUint32(l.block, uint32(len(payload)))
	binary.BigEndian.PutUint32(l.block[4:], crc32.Checksum(payload, castagnoli))
	n, err := l.current.Write(l.block)
	l.filesMu.Lock()
	last := l.segments[len(l.segments)-1]
	l.filesMu.Unlock()
	last.mu.Lock()
	last.size += int64(n)
	last.mu.Unlock()
	l.block = l.block[:0]
	return err
}

// ensureSegment begins a new segment if there is none, or if the present one is full or old.
func (l *Log) ensureSegment(now time.Time) error {
	if l.current != nil {
		l.filesMu.Lock()
		last := l.segments[len(l.segments)-1]
		l.filesMu.Unlock()
		full := last.size+int64(len(l.block)) >= l.segmentBytes
		if !full && now.Sub(l.began) < l.opts.MaxAge/7 {
			return nil
		}
		if err := l.flushBlock(); err != nil {
			return err
		}
		l.end()
		l.prune()
	}
	number := int64(1)
	if n := len(l.segments); n > 0 {
		number = l.segments[n-1].number + 1
	}
	path := filepath.Join(l.opts.Dir, fmt.Sprintf(segmentName, number))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(magic); err != nil {
		return errors.Join(err, f.Close(), os.Remove(path))
	}
	l.filesMu.Lock()
	l.segments = append(l.segments, &segment{path: path, number: number, size: int64(len(magic))})
	l.current = f
	l.filesMu.Unlock()
	l.encoder, l.began = encoder{}, now
	return nil
}

// end closes the current segment.
func (l *Log) end() {
	l.filesMu.Lock()
	f := l.current
	l.current = nil
	l.filesMu.Unlock()
	if f == nil {
		return
	}
	if err := f.Close(); err != nil {
		l.opts.Logger.Warn("the causal log is not written", "err", err)
	}
}

// prune removes the oldest segments beyond the bounds. It runs between two segments.
func (l *Log) prune() {
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	total := int64(0)
	for _, s := range l.segments {
		total += s.size
	}
	for len(l.segments) > 0 {
		oldest := l.segments[0]
		info, err := os.Stat(oldest.path)
		tooOld := err == nil && l.opts.Clock().Sub(info.ModTime()) > l.opts.MaxAge
		if total+l.segmentBytes <= l.opts.MaxBytes && len(l.segments) < maxSegments && !tooOld {
			return
		}
		if err := os.Remove(oldest.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			l.opts.Logger.Warn("cannot remove an old segment of the causal log", "err", err)
			return
		}
		total -= oldest.size
		l.segments = l.segments[1:]
	}
}
