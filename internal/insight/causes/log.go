package causes

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/insight/segments"
)

// bufferRecords are the Records that wait for the writer: 2 MB.
const bufferRecords = 8192

// Options are the settings of a Log. The default of MaxBytes is 64 MiB.
type Options = segments.Options

// Log is the causal log of one server. Safe for concurrent use.
type Log struct {
	files  *segments.Files
	writer *segments.Writer

	mu      sync.Mutex
	waiting []Record // for the writer
	spare   []Record // the other buffer, which the writer has emptied
	closed  bool

	// Used by the writer only.
	encoder encoder
	block   []byte

	appended, dropped atomic.Int64
}

// Open opens the log in a folder and starts its writer. The existing segments are read when a
// question needs them. Call Close.
func Open(opts Options) (*Log, error) {
	files, err := segments.Open(format, opts)
	if err != nil {
		return nil, err
	}
	files.Prune()
	l := &Log{files: files}
	l.writer = segments.NewWriter(segments.Work{Drain: l.drain, Close: files.End})
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
	n := len(l.waiting)
	l.mu.Unlock()
	switch n {
	case 1:
		l.writer.Wake()
	case bufferRecords / 2:
		l.writer.Hurry()
	}
}

// Counts returns how many Records were written and how many were dropped since Open.
func (l *Log) Counts() (appended, dropped int64) { return l.appended.Load(), l.dropped.Load() }

// Collectors returns the log's metrics: Records by whether they were kept or dropped.
func (l *Log) Collectors() []prometheus.Collector {
	const name, help = "knarr_causal_log_records_total", "Records of the causal log, by result."
	return []prometheus.Collector{
		segments.Counter(name, help, "kept", l.appended.Load), segments.Counter(name, help, "dropped", l.dropped.Load),
	}
}

// Close writes the waiting Records and stops the writer.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.writer.Stop()
}

// view returns the segments, oldest first, with all that was appended before the call.
func (l *Log) view(ctx context.Context) ([]segments.Segment, error) {
	if err := l.writer.Flush(ctx); err != nil {
		return nil, err
	}
	return l.files.View(), nil
}

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

// fail ends the present segment after an error: its encoder knows texts that it has not.
func (l *Log) fail(err error, lost int) {
	l.dropped.Add(int64(lost))
	l.files.Logger.Warn("the causal log is not written", "err", err)
	l.block = l.block[:0]
	l.files.End()
}

// put encodes a Record into the present block.
func (l *Log) put(r *Record) error {
	if l.files.IsFull(len(l.block)) {
		if err := l.flushBlock(); err != nil {
			return err
		}
		if err := l.files.Begin(nil); err != nil {
			return err
		}
		l.encoder = encoder{}
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
	if len(l.block) == 0 {
		return nil
	}
	payload := l.block[blockHead:]
	binary.BigEndian.PutUint32(l.block, uint32(len(payload)))
	binary.BigEndian.PutUint32(l.block[4:], crc32.Checksum(payload, castagnoli))
	err := l.files.Append(l.block)
	l.block = l.block[:0]
	return err
}
