package history

import (
	"context"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/insight/segments"
)

const (
	// maxWaiting and maxWaitingBytes bound what waits for the writer.
	maxWaiting      = 8192
	maxWaitingBytes = 4 << 20
	// blockTime is how long a block waits for more changes. What a killed process loses, its next
	// start asks the store for.
	blockTime = 5 * time.Second
	// keepTime is how often the position is written if nothing is recorded. It is shorter than the
	// time after which a store compacts.
	keepTime = time.Minute
	// closeTime is how long Close waits for states that are read from the store.
	closeTime = 3 * time.Second
)

// Options are the settings of a Log. The default of MaxBytes is 256 MiB.
type Options = segments.Options

// Log is the history of one server. Safe for concurrent use.
type Log struct {
	files  *segments.Files
	writer *segments.Writer // set by Start
	rules  Rules            // set by Start

	mu           sync.Mutex
	waiting      []Write // for the writer
	times        []stamp // of the batches in waiting
	waitingBytes int
	lost         *Gap // changes that were dropped after those that wait
	seen         int64
	started      bool
	closed       bool

	ctx    context.Context // of reads of states
	cancel context.CancelFunc

	// blockMu guards the following fields. Only the writer changes them.
	blockMu  sync.Mutex
	block    pending
	position int64
	lastTime time.Time

	// Used by the writer only.
	compressor *zstd.Encoder
	packed     []byte
	from       int64 // position at the start: changes up to it are known
	onDisk     int64 // position, and the time of the last entry up to it
	onDiskTime time.Time

	recorded, dropped atomic.Int64
}

// stamp says until which index of waiting changes have a time.
type stamp struct {
	end int
	at  time.Time
}

// pending is the block that is not written yet.
type pending struct {
	raw     []byte
	encoder encoder
	head    header
	marks   map[uint32]bool
	began   time.Time
	changes int64
}

// Open opens the log in a folder, and cuts the torn end that a crash leaves. Call Start, then
// Close.
func Open(opts Options) (*Log, error) {
	files, err := segments.Open(format, opts)
	if err != nil {
		return nil, err
	}
	l := &Log{files: files}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	view := files.View()
	if len(view) == 0 {
		return l, nil
	}
	if l.position, l.lastTime, err = end(&view[len(view)-1]); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	l.onDisk, l.onDiskTime = l.position, l.lastTime
	return l, nil
}

// Position returns the revision after which the log needs changes, and the time of the last one; 0
// if the log is empty.
func (l *Log) Position() (revision int64, at time.Time) {
	l.blockMu.Lock()
	defer l.blockMu.Unlock()
	return l.position, l.lastTime
}

// Start starts the writer. The log continues after the revision; changes between its position and
// the revision were missed. A revision before the position belongs to another history of the store:
// the log begins anew.
func (l *Log) Start(rules Rules, revision int64) error {
	now := l.files.Clock().UTC()
	before, since := l.Position()
	if revision < before {
		l.files.Logger.Warn("the store is older than the history of objects, which begins anew", "position", before, "revision", revision)
		l.files.Clear()
	}
	l.rules, l.seen = rules, revision
	if len(l.files.View()) == 0 {
		l.position, l.lastTime = revision, now
		l.onDisk, l.onDiskTime = revision, now
		if err := l.beginSegment(); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	} else if before < revision {
		l.putGap(&Gap{From: since, To: now, FromRevision: before, ToRevision: revision})
	}
	l.from = l.position
	l.writer = segments.NewWriter(segments.Work{Drain: l.drain, Save: l.save, Due: l.due, Close: l.files.End})
	l.mu.Lock()
	l.started = true
	l.mu.Unlock()
	return nil
}

// Append adds a batch of changes, in the order of revisions, and says that the log has been told of
// all changes up to the revision. It never waits for the disk: if the buffer is full, the batch is
// dropped, and leaves a gap.
func (l *Log) Append(batch []Write, revision int64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.started || l.closed || revision <= l.seen && len(batch) == 0 {
		return
	}
	before, kept := len(l.waiting), l.waitingBytes
	if l.lost == nil {
		for i := range batch {
			if w := &batch[i]; l.rules.Recorded(w.Key) {
				l.waiting = append(l.waiting, *w)
				l.waitingBytes += len(w.Before)
			}
		}
	}
	if l.lost != nil || l.isFull(batch) {
		l.dropped.Add(int64(len(batch)))
		clear(l.waiting[before:])
		l.waiting, l.waitingBytes = l.waiting[:before], kept
		l.lose(revision, at)
		return
	}
	l.seen = max(l.seen, revision)
	if len(l.waiting) == before {
		return // the writer reads seen when it has something to do
	}
	l.times = append(l.times, stamp{len(l.waiting), at})
	if len(l.waiting) > maxWaiting/4 || l.waitingBytes > maxWaitingBytes/4 {
		l.writer.Hurry()
	} else {
		l.writer.Wake()
	}
}

// isFull reports whether too much waits; mu is held. Replayed changes come all at once, and have no
// states.
func (l *Log) isFull(batch []Write) bool {
	most := maxWaiting
	if len(batch) > 0 && batch[0].Replayed {
		most *= 16
	}
	return len(l.waiting) > most || len(l.waiting) > 1 && l.waitingBytes > maxWaitingBytes
}

// Lose says that changes up to the revision were missed.
func (l *Log) Lose(revision int64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started && !l.closed && revision > l.seen {
		l.lose(revision, at)
	}
}

// lose begins a gap, or extends it; mu is held.
func (l *Log) lose(revision int64, at time.Time) {
	if l.lost == nil {
		l.lost = &Gap{From: at, FromRevision: l.seen}
		if n := len(l.times); n > 0 {
			l.lost.From = l.times[n-1].at
		}
	}
	l.seen = max(l.seen, revision)
	l.lost.To, l.lost.ToRevision = at, l.seen
	l.writer.Hurry()
}

// Close writes what waits and stops the writer.
func (l *Log) Close() {
	l.mu.Lock()
	started, closed := l.started, l.closed
	l.closed = true
	l.mu.Unlock()
	if closed || !started {
		return
	}
	timer := time.AfterFunc(closeTime, l.cancel)
	l.writer.Stop()
	timer.Stop()
	l.cancel()
}

// flush returns when the changes appended before the call can be read.
func (l *Log) flush(ctx context.Context) error {
	l.mu.Lock()
	started := l.started
	l.mu.Unlock()
	if !started {
		return nil
	}
	return l.writer.Flush(ctx)
}

// ensureSegment begins a new segment if the last one is full or old.
func (l *Log) ensureSegment() error {
	if err := l.files.Resume(); err != nil {
		return err
	}
	if l.files.IsFull(0) {
		return l.beginSegment()
	}
	return nil
}

func (l *Log) beginSegment() error { return l.files.Begin(segmentHead(l.onDisk, l.onDiskTime)) }

// flushBlock writes the pending block, or the position if there is none.
func (l *Log) flushBlock() error {
	b := &l.block
	if len(b.raw) == 0 && l.position == l.onDisk {
		return nil
	}
	now := l.files.Clock()
	if err := l.ensureSegment(); err != nil {
		return err
	}
	h := b.head
	h.position, h.rawSize = l.position, uint32(len(b.raw))
	if len(b.raw) == 0 {
		h.first, h.firstTime = l.position, micros(l.lastTime)
		if at := now.UTC(); at.After(l.lastTime) {
			h.firstTime = micros(at)
		}
		h.lastTime = h.firstTime
	}
	l.packed = l.packed[:0]
	if len(b.raw) > 0 {
		if l.compressor == nil {
			c, err := newCompressor()
			if err != nil {
				return err
			}
			l.compressor = c
		}
		l.packed = l.compressor.EncodeAll(b.raw, l.packed)
		h.marks = slices.Sorted(maps.Keys(b.marks))
	}
	h.size, h.sum = uint32(len(l.packed)), crc32.Checksum(l.packed, castagnoli)
	out := append(h.append(make([]byte, 0, h.length())), l.packed...)
	l.blockMu.Lock()
	defer l.blockMu.Unlock()
	if err := l.files.Append(out); err != nil {
		return err
	}
	l.lastTime = time.UnixMicro(h.lastTime).UTC()
	l.resetBlock()
	l.onDisk, l.onDiskTime = l.position, l.lastTime
	if cap(l.packed) > 2*blockSize {
		l.packed = nil
	}
	return nil
}

// resetBlock empties the pending block; blockMu is held. Readers have copied its bytes.
func (l *Log) resetBlock() {
	raw := l.block.raw[:0]
	if cap(raw) > 4*blockSize {
		raw = nil
	}
	l.block = pending{raw: raw}
}

// Collectors returns the log's metrics: changes by whether they were kept or dropped, and its size.
func (l *Log) Collectors() []prometheus.Collector {
	const name, help = "knarr_history_changes_total", "Changes of objects for the history, by result."
	size := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "knarr_history_bytes", Help: "Size of the history of objects on disk."},
		func() float64 { return float64(l.files.Bytes()) })
	return []prometheus.Collector{segments.Counter(name, help, "kept", l.recorded.Load), segments.Counter(name, help, "dropped", l.dropped.Load), size}
}
