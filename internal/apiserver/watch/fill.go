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
func (st *WatchStream) fill(b *streamBuffer) (more bool, err error) {
	w := st.Watcher
	if w.Cursor == nil && st.Member.hub == nil {
		// The watch's revision was too old.
		return false, errors.Join(st.put(b, w.expiredEvent()), errWatchOver)
	}
	if more, err := st.fillInitial(b); more || err != nil {
		return more, err
	}
	if st.Member.hub == nil {
		if more, err = st.fillOwn(b); more || err != nil {
			return more, err
		}
	}
	if st.Member.hub != nil {
		if more, err = st.fillShared(b); more || err != nil {
			return more, err
		}
	}
	return false, st.fillDue(b)
}

// fillInitial puts the objects that existed at the beginning.
func (st *WatchStream) fillInitial(b *streamBuffer) (more bool, err error) {
	w := st.Watcher
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
		if err := st.put(b, watchEvent{typ: watch.Bookmark, obj: w.BookmarkObject(w.revision, true)}); err != nil {
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
func (st *WatchStream) fillOwn(b *streamBuffer) (more bool, err error) {
	w := st.Watcher
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
				if w.canShare(st.Format) && w.Join(&st.Member, st.Enc, st.Out.Chunked()) {
					st.Enc = nil
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
func (st *WatchStream) putExpiry(b *streamBuffer, why error) error {
	if errors.Is(why, cache.ErrForgotten) {
		return errWatchOver
	}
	return errors.Join(st.put(b, st.Watcher.expiredEvent()), errWatchOver)
}

// fillShared writes the hub's frames.
func (st *WatchStream) fillShared(b *streamBuffer) (more bool, err error) {
	if err := st.send(b); err != nil { // the earlier events come first
		return false, err
	}
	for sent := 0; sent < b.room; {
		frames, revision, err := st.Member.Take(b.room - sent)
		st.Watcher.revision = max(st.Watcher.revision, revision)
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
		if _, err := st.Out.Write(frames); err != nil {
			return false, err
		}
		sent += len(frames)
	}
	return true, nil
}

// fallBack leaves the hub and opens the stream's own cursor.
func (st *WatchStream) fallBack() error {
	st.Member.Leave()
	enc := NewEventEncoder(st.Watcher.Op.Endpoint, st.Format)
	st.Enc = &enc
	if err := st.Watcher.reopen(); err != nil || st.Watcher.Cursor == nil {
		return err // the next turn reports that the revision is too old
	}
	st.Watcher.Cursor.Notify(st.Wake)
	return nil
}

// fillDue handles what is due by time: the end, or a bookmark.
func (st *WatchStream) fillDue(b *streamBuffer) error {
	now := time.Now()
	if !now.Before(st.End) {
		return errWatchOver
	}
	if !st.timerFired.Swap(false) {
		return nil
	}
	defer func() { st.Timer.Reset(time.Until(st.nextDue())) }()
	if !st.Watcher.req.Opts.AllowWatchBookmarks || now.Before(st.nextDue()) {
		return nil
	}
	if st.Member.hub != nil {
		revision, ok := st.Member.progress()
		if !ok {
			return nil // events come first
		}
		st.Watcher.revision = max(st.Watcher.revision, revision)
	}
	st.lastWrite = now
	return st.put(b, watchEvent{typ: watch.Bookmark, obj: st.Watcher.BookmarkObject(st.Watcher.revision, false)})
}

func (st *WatchStream) put(b *streamBuffer, ev watchEvent) error {
	if st.Enc != nil {
		return st.putAs(b, ev, st.Enc)
	}
	// The hub has the encoder; this is one event outside it.
	enc := NewEventEncoder(st.Watcher.Op.Endpoint, st.Format)
	return st.putAs(b, ev, &enc)
}

func (st *WatchStream) putAs(b *streamBuffer, ev watchEvent, enc *EventEncoder) error {
	frame, err := enc.frame(ev)
	if err != nil {
		return err
	}
	st.Watcher.Op.Endpoint.Watched.Sent(len(frame))
	if st.Out.Chunked() {
		b.frames = appendChunk(b.frames, frame)
	} else {
		b.frames = append(b.frames, frame...)
	}
	return nil
}

// send writes the buffer's frames.
func (st *WatchStream) send(b *streamBuffer) error {
	if len(b.frames) == 0 {
		return nil
	}
	_, err := st.Out.Write(b.frames)
	b.frames = b.frames[:0]
	return err
}
