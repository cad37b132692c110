package history

import (
	"context"
	"time"
)

// beforeTimeout bounds the read of a replaced state.
const beforeTimeout = 5 * time.Second

// due is the time until the block or the position must be written.
func (l *Log) due() time.Duration {
	if len(l.block.raw) > 0 {
		return max(0, blockTime-time.Since(l.block.began))
	}
	return keepTime
}

// save writes the pending block and the position. After an error the block is given up.
func (l *Log) save() {
	if err := l.flushBlock(); err != nil {
		l.fail(err)
	}
}

// fail gives up the pending block: its time becomes a gap, which the next block has.
func (l *Log) fail(err error) {
	l.files.Logger.Warn("the history of objects is not written", "err", err)
	l.dropped.Add(l.block.changes)
	l.recorded.Add(-l.block.changes)
	g := Gap{FromRevision: l.onDisk, ToRevision: l.position, From: time.UnixMicro(l.block.head.firstTime).UTC(), To: l.lastTime}
	if len(l.block.raw) == 0 {
		g.From = l.lastTime
	}
	l.blockMu.Lock()
	l.resetBlock()
	l.blockMu.Unlock()
	l.putGap(&g)
}

// drain takes the waiting changes into the pending block, which it writes when it is full.
func (l *Log) drain() {
	l.mu.Lock()
	batch, times, lost, seen := l.waiting, l.times, l.lost, l.seen
	l.waiting, l.times, l.waitingBytes, l.lost = nil, nil, 0, nil
	l.mu.Unlock()
	begin := 0
	for _, t := range times {
		l.take(batch[begin:t.end], t.at)
		begin = t.end
	}
	l.blockMu.Lock()
	l.position = max(l.position, seen)
	l.blockMu.Unlock()
	if lost != nil {
		l.putGap(lost)
	}
}

// take puts changes that Append was told of at once, each with the state before all of them.
func (l *Log) take(batch []Write, at time.Time) {
	if len(batch) == 1 {
		l.put(&batch[0], at)
		return
	}
	newest := map[string]*Write{} // by key
	for i := range batch {
		w := &batch[i]
		if before := newest[w.Key]; before != nil && w.Effect != Created {
			w.Before, w.BeforeRevision = before.After, before.Revision
		}
		l.put(w, at)
		newest[w.Key] = w
	}
}

// put adds a change to the pending block.
func (l *Log) put(w *Write, at time.Time) {
	if w.Revision <= l.from {
		return // replayed, and known
	}
	c := Change{Key: w.Key, Revision: w.Revision, Time: at, Effect: w.Effect, Before: w.Before, BeforeRevision: w.BeforeRevision}
	if c.Effect == Created {
		c.Before, c.BeforeRevision = nil, 0
	} else if c.BeforeRevision == 0 {
		ctx, cancel := context.WithTimeout(l.ctx, beforeTimeout)
		var err error
		c.Before, c.BeforeRevision, err = l.rules.Before(ctx, w.Key, w.Revision)
		cancel()
		if err != nil || c.BeforeRevision == 0 {
			l.files.Logger.Debug("the state before a change is not known", "key", w.Key, "revision", w.Revision, "err", err)
			c.Lost, c.Before, c.BeforeRevision = true, nil, 0
		}
	}
	l.rules.Reduce(&c, w)
	if len(c.Before) > maxState {
		c.Before, c.Omitted = nil, true
	}
	l.blockMu.Lock()
	c.Time = l.orderly(c.Time)
	b := l.begin(c.Revision, c.Time)
	if b.encoder.keys[c.Key] == nil {
		kind, namespace := l.rules.Describe(c.Key)
		b.marks[kindMark(kind)], b.marks[keyMark(c.Key)] = true, true
		if namespace != "" {
			b.marks[namespaceMark(namespace)] = true
		}
	}
	b.raw = b.encoder.change(b.raw, &c)
	b.changes++
	l.position = max(l.position, c.Revision)
	full := len(b.raw) >= blockSize || b.encoder.whole >= maxWhole || len(b.marks) >= maxMarks-4
	l.blockMu.Unlock()
	l.recorded.Add(1)
	if full {
		l.save()
	}
}

// putGap adds a gap to the pending block.
func (l *Log) putGap(g *Gap) {
	l.files.Logger.Warn("the history of objects has a gap", "from", g.From, "to", g.To, "revisions", g.ToRevision-g.FromRevision)
	l.blockMu.Lock()
	b := l.begin(g.FromRevision, l.orderly(g.From))
	b.raw = b.encoder.gap(b.raw, g)
	b.marks[gapMark] = true
	l.position = max(l.position, g.ToRevision)
	l.lastTime = l.orderly(g.To)
	b.head.lastTime = micros(l.lastTime)
	l.blockMu.Unlock()
}

// orderly returns the time, or that of the last entry if the clock went back; blockMu is held.
func (l *Log) orderly(at time.Time) time.Time {
	at = at.UTC().Truncate(time.Microsecond)
	if at.Before(l.lastTime) {
		return l.lastTime
	}
	return at
}

// begin returns the pending block for an entry; blockMu is held.
func (l *Log) begin(revision int64, at time.Time) *pending {
	b := &l.block
	if len(b.raw) == 0 {
		b.marks, b.began = map[uint32]bool{}, time.Now()
		b.head.first, b.head.firstTime = revision, micros(at)
	}
	b.head.lastTime, l.lastTime = micros(at), at
	return b
}
