package apiserver

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/knarr-project/knarr/internal/cache"
)

// turnBytes is about how much a turn sends at most.
const turnBytes = 96 << 10

// fill puts events into the buffer, or writes shared frames. more reports that there are others.
func (st *watchStream) fill(b *streamBuffer) (more bool, err error) {
	w := st.w
	if w.cursor == nil && st.member.hub == nil {
		// The watch's revision was too old.
		return false, errors.Join(st.put(b, w.expiry()), errStreamOver)
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
func (st *watchStream) fillInitial(b *streamBuffer) (more bool, err error) {
	w := st.w
	for ; len(w.initial) > 0; w.initial = w.initial[1:] {
		if len(b.frames) >= b.room {
			return true, nil
		}
		if err := st.put(b, watchEvent{what: watch.Added, entry: w.initial[0], initial: true}); err != nil {
			return false, err
		}
	}
	w.initial = nil
	if w.bookmark {
		w.bookmark = false
		if err := st.put(b, watchEvent{what: watch.Bookmark, obj: w.bookmarkObject(w.revision, true)}); err != nil {
			return false, err
		}
	}
	if w.begun != nil {
		w.begun()
		w.begun = nil
	}
	return false, nil
}

// fillOwn puts events of the stream's own cursor. After the last one it joins the hub.
func (st *watchStream) fillOwn(b *streamBuffer) (more bool, err error) {
	w := st.w
	for {
		if len(st.todo) == 0 {
			changes, revision, err := w.cursor.Poll()
			if errors.Is(err, cache.ErrTooOld) {
				return false, st.putExpiry(b, err)
			}
			if err != nil {
				return false, err
			}
			w.revision = max(w.revision, revision)
			if len(changes) == 0 {
				if w.joins(st.f) && w.join(&st.member, st.enc, st.out.Chunked()) {
					st.enc = nil
				}
				return false, nil
			}
			if st.todo = changes; w.req.fieldsOf != nil {
				if st.todo, err = w.req.narrow(changes); err != nil {
					return false, errors.Join(st.put(b, watchEvent{what: watch.Error, obj: statusOf(err)}), errStreamOver)
				}
			}
		}
		for ; len(st.todo) > 0; st.todo = st.todo[1:] {
			if len(b.frames) >= b.room {
				return true, nil
			}
			if err := st.put(b, watchEvent{what: eventType(st.todo[0].Type), entry: st.todo[0].Entry}); err != nil {
				return false, err
			}
		}
	}
}

// putExpiry ends the stream with the error that makes the client list again. A forgotten kind ends
// without an error: the client's state is not out of date.
func (st *watchStream) putExpiry(b *streamBuffer, why error) error {
	if errors.Is(why, cache.ErrForgotten) {
		return errStreamOver
	}
	return errors.Join(st.put(b, st.w.expiry()), errStreamOver)
}

// fillShared writes the hub's frames.
func (st *watchStream) fillShared(b *streamBuffer) (more bool, err error) {
	if err := st.send(b); err != nil { // the earlier events come first
		return false, err
	}
	for sent := 0; sent < b.room; {
		frames, revision, err := st.member.take(b.room - sent)
		st.w.revision = max(st.w.revision, revision)
		switch {
		case errors.Is(err, errBehind):
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
func (st *watchStream) fallBack() error {
	st.member.leave()
	enc := newEventEncoder(st.w.op.endpoint, st.f)
	st.enc = &enc
	if err := st.w.reopen(); err != nil || st.w.cursor == nil {
		return err // the next turn reports that the revision is too old
	}
	st.w.cursor.Notify(st.wake)
	return nil
}

// fillDue handles what is due by time: the end, or a bookmark.
func (st *watchStream) fillDue(b *streamBuffer) error {
	now := time.Now()
	if !now.Before(st.end) {
		return errStreamOver
	}
	if !st.rang.Swap(false) {
		return nil
	}
	defer func() { st.timer.Reset(time.Until(st.alarm())) }()
	if !st.w.req.opts.AllowWatchBookmarks || now.Before(st.alarm()) {
		return nil
	}
	if st.member.hub != nil {
		revision, ok := st.member.progress()
		if !ok {
			return nil // events come first
		}
		st.w.revision = max(st.w.revision, revision)
	}
	st.quiet = now
	return st.put(b, watchEvent{what: watch.Bookmark, obj: st.w.bookmarkObject(st.w.revision, false)})
}

func (st *watchStream) put(b *streamBuffer, ev watchEvent) error {
	if st.enc != nil {
		return st.putAs(b, ev, st.enc)
	}
	// The hub has the encoder; this is one event outside it.
	enc := newEventEncoder(st.w.op.endpoint, st.f)
	return st.putAs(b, ev, &enc)
}

func (st *watchStream) putAs(b *streamBuffer, ev watchEvent, enc *eventEncoder) error {
	frame, err := enc.frame(ev)
	if err != nil {
		return err
	}
	st.w.op.endpoint.watched.sent(len(frame))
	if st.out.Chunked() {
		b.frames = appendChunk(b.frames, frame)
	} else {
		b.frames = append(b.frames, frame...)
	}
	return nil
}

// send writes the buffer's frames.
func (st *watchStream) send(b *streamBuffer) error {
	if len(b.frames) == 0 {
		return nil
	}
	_, err := st.out.Write(b.frames)
	b.frames = b.frames[:0]
	return err
}
