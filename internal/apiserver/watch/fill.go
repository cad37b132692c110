package watch

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// turnBytes is about how much a turn sends at most.
const turnBytes = 96 << 10

// fill puts events into the buffer, or writes shared frames. more reports that there are others.
func (st *stream) fill(b *streamBuffer) (more bool, err error) {
	w := st.watcher
	if w.Cursor == nil && st.member.hub == nil {
		// The watch's revision was too old.
		return false, errors.Join(st.put(b, w.expiredEvent()), errWatchOver)
	}
	if more, err := st.fillInitial(b); more || err != nil {
		return more, err
	}
	if st.member.hub == nil {
		if more, err = st.fillOwn(b); more || err != nil {
			return more, err
		}
	}
	if st.member.hub != nil {
		if more, err = st.fillShared(b); more || err != nil {
			return more, err
		}
	}
	return false, st.fillDue(b)
}

// fillInitial puts the objects that existed at the beginning.
func (st *stream) fillInitial(b *streamBuffer) (more bool, err error) {
	w := st.watcher
	for ; len(w.Initial) > 0; w.Initial = w.Initial[1:] {
		if len(b.frames) >= b.room {
			return true, nil
		}
		if err := st.put(b, watchEvent{typ: watch.Added, entry: w.Initial[0], initial: true}); err != nil {
			return false, err
		}
	}
	w.Initial = nil
	if w.Bookmark {
		w.Bookmark = false
		if err := st.put(b, watchEvent{typ: watch.Bookmark, obj: w.bookmarkObject(w.revision, true)}); err != nil {
			return false, err
		}
	}
	if w.OnInitialSent != nil {
		w.OnInitialSent()
		w.OnInitialSent = nil
	}
	return false, nil
}

// fillOwn puts events of the stream's own cursor. After the last one it joins the hub.
func (st *stream) fillOwn(b *streamBuffer) (more bool, err error) {
	w := st.watcher
	for {
		if len(st.pending) == 0 {
			changes, revision, err := w.Cursor.Poll()
			if errors.Is(err, cache.ErrTooOld) {
				return false, st.putExpiry(b, err)
			}
			if err != nil {
				return false, err
			}
			w.revision = max(w.revision, revision)
			if len(changes) == 0 {
				if w.canShare(st.format) && w.join(&st.member, st.enc, st.out.Chunked()) {
					st.enc = nil
				}
				return false, nil
			}
			if st.pending = changes; w.req.FieldsOf != nil {
				if st.pending, err = w.req.Narrow(changes); err != nil {
					return false, errors.Join(st.put(b, watchEvent{typ: watch.Error, obj: wire.StatusOf(err)}), errWatchOver)
				}
			}
		}
		for ; len(st.pending) > 0; st.pending = st.pending[1:] {
			if len(b.frames) >= b.room {
				return true, nil
			}
			if err := st.put(b, watchEvent{typ: eventType(st.pending[0].Type), entry: st.pending[0].Entry}); err != nil {
				return false, err
			}
		}
	}
}

// putExpiry ends the stream with the error that makes the client list again. A forgotten kind ends
// without an error: the client's state is not out of date.
func (st *stream) putExpiry(b *streamBuffer, why error) error {
	if errors.Is(why, cache.ErrForgotten) {
		return errWatchOver
	}
	return errors.Join(st.put(b, st.watcher.expiredEvent()), errWatchOver)
}

// fillShared writes the hub's frames.
func (st *stream) fillShared(b *streamBuffer) (more bool, err error) {
	if err := st.send(b); err != nil { // the earlier events come first
		return false, err
	}
	for sent := 0; sent < b.room; {
		frames, revision, err := st.member.take(b.room - sent)
		st.watcher.revision = max(st.watcher.revision, revision)
		switch {
		case errors.Is(err, errFramesDropped):
			return true, st.fallBack()
		case errors.Is(err, cache.ErrTooOld):
			return false, st.putExpiry(b, err)
		case err != nil:
			return false, err
		case len(frames) == 0:
			return false, nil
		}
		if _, err := st.out.Write(frames); err != nil {
			return false, err
		}
		sent += len(frames)
	}
	return true, nil
}

// fallBack leaves the hub and opens the stream's own cursor.
func (st *stream) fallBack() error {
	st.member.leave()
	enc := newEventEncoder(st.watcher.op.Endpoint, st.format)
	st.enc = &enc
	if err := st.watcher.reopen(); err != nil || st.watcher.Cursor == nil {
		return err // the next turn reports that the revision is too old
	}
	st.watcher.Cursor.Notify(st.wake)
	return nil
}

// fillDue handles what is due by time: the end, or a bookmark.
func (st *stream) fillDue(b *streamBuffer) error {
	now := time.Now()
	if !now.Before(st.end) {
		return errWatchOver
	}
	if !st.timerFired.Swap(false) {
		return nil
	}
	defer func() { st.timer.Reset(time.Until(st.nextDue())) }()
	if !st.watcher.req.Opts.AllowWatchBookmarks || now.Before(st.nextDue()) {
		return nil
	}
	if st.member.hub != nil {
		revision, ok := st.member.progress()
		if !ok {
			return nil // events come first
		}
		st.watcher.revision = max(st.watcher.revision, revision)
	}
	st.lastWrite = now
	return st.put(b, watchEvent{typ: watch.Bookmark, obj: st.watcher.bookmarkObject(st.watcher.revision, false)})
}

func (st *stream) put(b *streamBuffer, ev watchEvent) error {
	if st.enc != nil {
		return st.putAs(b, ev, st.enc)
	}
	// The hub has the encoder; this is one event outside it.
	enc := newEventEncoder(st.watcher.op.Endpoint, st.format)
	return st.putAs(b, ev, &enc)
}

func (st *stream) putAs(b *streamBuffer, ev watchEvent, enc *eventEncoder) error {
	frame, err := enc.frame(ev)
	if err != nil {
		return err
	}
	st.watcher.op.Endpoint.Watched.Sent(len(frame))
	if st.out.Chunked() {
		b.frames = appendChunk(b.frames, frame)
	} else {
		b.frames = append(b.frames, frame...)
	}
	return nil
}

// send writes the buffer's frames.
func (st *stream) send(b *streamBuffer) error {
	if len(b.frames) == 0 {
		return nil
	}
	_, err := st.out.Write(b.frames)
	b.frames = b.frames[:0]
	return err
}
