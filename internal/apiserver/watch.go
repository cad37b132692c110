package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/knarr-project/knarr/internal/apiserver/deliver"
	"github.com/knarr-project/knarr/internal/cache"
)

const (
	// bookmarkEvery is how often an idle watch is told the revision that it has reached.
	bookmarkEvery = time.Minute
	// bookmarkBeforeEnd is how long before its end a watch gets its last bookmark.
	bookmarkBeforeEnd = 2 * time.Second
)

// watchEvent is one event for one watcher: an entry, or for a bookmark or an error an object.
type watchEvent struct {
	what  watch.EventType
	entry *cache.Entry
	obj   runtime.Object

	initial bool // the object was there when the watch began: to begin with is to list, and what lists have in common is kept
}

// eventSink takes a watcher's events; flush sends what has been put so far.
type eventSink interface {
	put(watchEvent) error
	flush() error
}

// watcher is one open watch.
type watcher struct {
	op      *operation
	req     *listRequest
	initial []*cache.Entry
	// bookmark ends the initial events with the bookmark that says so.
	bookmark bool
	revision int64
	reader   cache.Reader
	cursor   *cache.Cursor
	// begun is called when the initial events are sent; from there on a watch costs little.
	begun func()
	// bound holds the client to the watch's end; what it gives is called afterwards.
	bound func(ctx context.Context) (release func())
	// settle, if there is one, takes a watch that has caught up out of its request; from then on everything here is that of who has taken it.
	settle  func(end time.Time) bool
	settled bool
	pace    deliver.Paced
}

// openWatch finds where the watch starts. An error is the request's answer.
func (op *operation) openWatch(ctx context.Context, req *listRequest) (*watcher, error) {
	r := op.endpoint.registry
	reader, err := r.cache(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	w := &watcher{op: op, req: req}
	rv, initial := req.opts.ResourceVersion, req.opts.SendInitialEvents
	switch {
	case initial != nil && *initial, initial == nil && (rv == "" || rv == "0"):
		if err := r.waitFresh(ctx, reader, rv); err != nil {
			return nil, err
		}
		p, err := op.collect(reader.Snapshot(), req, r.prefix(op.namespace), r.prefix(op.namespace), 0)
		if err != nil {
			return nil, err
		}
		w.initial, w.revision = p.entries, p.revision
		r.reads.initial.Add(uint64(len(p.entries)))
		w.bookmark = initial != nil && *initial && req.opts.AllowWatchBookmarks
	case rv == "" || rv == "0":
		if err := r.waitFresh(ctx, reader, rv); err != nil {
			return nil, err
		}
		w.revision = reader.Revision()
	default:
		if w.revision, err = parseRevision(rv); err != nil {
			return nil, err
		}
	}
	w.reader = reader
	if w.cursor, err = reader.Watch(w.revision, w.interest()); err != nil {
		if errors.Is(err, cache.ErrTooOld) {
			return w, nil // told in the stream, as upstream does
		}
		return nil, storeError(err)
	}
	return w, nil
}

// interest is what the watch's cursor looks for.
func (w *watcher) interest() cache.Interest {
	interest := cache.Interest{Namespace: w.op.namespace, Labels: w.req.labels, Fields: w.req.fields}
	if name, ok := w.req.fields.RequiresExactMatch("metadata.name"); ok {
		interest.Name = name
	}
	if w.req.fieldsOf != nil {
		interest.Fields = nil // looked at by the watcher itself
	}
	return interest
}

// run sends events until ctx ends, the time is over or the sink fails.
func (w *watcher) run(ctx context.Context, sink eventSink) error {
	if w.cursor == nil {
		return w.expired(sink)
	}
	defer func() {
		if !w.settled && w.cursor != nil { // else a hub has it, or has had it
			w.cursor.Close()
		}
	}()
	for _, entry := range w.initial {
		if err := sink.put(watchEvent{what: watch.Added, entry: entry, initial: true}); err != nil {
			return err
		}
	}
	w.initial = nil
	if w.bookmark {
		if err := sink.put(watchEvent{what: watch.Bookmark, obj: w.bookmarkObject(w.revision, true)}); err != nil {
			return err
		}
	}
	if err := sink.flush(); err != nil {
		return err
	}
	if w.begun != nil {
		w.begun()
	}
	end := time.Now().Add(w.duration())
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if w.bound != nil {
		defer w.bound(ctx)()
	}
	for ctx.Err() == nil && !w.settled {
		if err := w.next(ctx, end, sink); err != nil {
			return err
		}
	}
	return nil
}

// next sends the next changes, or a bookmark when there are none for a while. A watch that has caught up goes on in a hub, if it can.
func (w *watcher) next(ctx context.Context, end time.Time, sink eventSink) error {
	if shared, ok := sink.(frameSink); ok && w.joins(shared.encoder().f) {
		changes, revision, err := w.cursor.Poll()
		if err != nil || len(changes) > 0 {
			return w.send(ctx, sink, changes, revision, err)
		}
		w.revision = max(w.revision, revision)
		if w.settle != nil {
			if w.settled = w.settle(end); w.settled {
				return nil
			}
		}
		m := newWaitingMember()
		if w.join(&m.member, shared.encoder(), false) {
			return w.follow(ctx, end, shared, m)
		}
	}
	bounded, cancel := context.WithDeadline(ctx, w.quietUntil(end))
	defer cancel()
	changes, revision, err := w.cursor.Next(bounded)
	if err != nil && bounded.Err() != nil && !errors.Is(err, cache.ErrTooOld) {
		return nil // the client has gone, or the time is over
	}
	if err == nil && len(changes) == 0 {
		w.revision = max(w.revision, revision)
		return w.progress(ctx, sink)
	}
	return w.send(ctx, sink, changes, revision, err)
}

// quietUntil is when the next bookmark is due.
func (w *watcher) quietUntil(end time.Time) time.Time {
	until := time.Now().Add(bookmarkEvery)
	if last := end.Add(-bookmarkBeforeEnd); until.After(last) && last.After(time.Now()) {
		until = last
	}
	return until
}

// progress tells an idle watch how far it is.
func (w *watcher) progress(ctx context.Context, sink eventSink) error {
	if !w.req.opts.AllowWatchBookmarks || ctx.Err() != nil {
		return nil
	}
	if err := sink.put(watchEvent{what: watch.Bookmark, obj: w.bookmarkObject(w.revision, false)}); err != nil {
		return err
	}
	return sink.flush()
}

// send sends what a cursor gave.
func (w *watcher) send(ctx context.Context, sink eventSink, changes []cache.Change, revision int64, err error) error {
	if errors.Is(err, cache.ErrForgotten) {
		return err
	}
	if errors.Is(err, cache.ErrTooOld) {
		return errors.Join(w.expired(sink), err)
	}
	if err != nil {
		return err
	}
	w.revision = max(w.revision, revision)
	if w.req.fieldsOf != nil {
		if changes, err = w.req.narrow(changes); err != nil {
			return errors.Join(w.tell(sink, watchEvent{what: watch.Error, obj: statusOf(err)}), err)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	for i := range changes {
		if err := sink.put(watchEvent{what: eventType(changes[i].Type), entry: changes[i].Entry}); err != nil {
			return err
		}
	}
	return w.flush(ctx, sink)
}

func (w *watcher) flush(ctx context.Context, sink eventSink) error {
	if err := sink.flush(); err != nil {
		return err
	}
	w.gather(ctx)
	return nil
}

// frameSink takes frames that are made already.
type frameSink interface {
	eventSink
	encoder() *eventEncoder
	putFrames(frames []byte) error
}

// waitingMember is a hub's member whose goroutine waits for news.
type waitingMember struct {
	member
	task deliver.Task
	news chan struct{}
}

func newWaitingMember() *waitingMember {
	m := &waitingMember{news: make(chan struct{}, 1)}
	m.task = deliver.NewTask(func() time.Duration {
		select {
		case m.news <- struct{}{}:
		default:
		}
		return deliver.Idle
	})
	m.member.task = &m.task
	return m
}

// follow sends a hub's frames until the watch is over, or too slow for the hub: then it goes on with a cursor of its own.
func (w *watcher) follow(ctx context.Context, end time.Time, sink frameSink, m *waitingMember) error {
	defer m.leave()
	timer := time.NewTimer(time.Until(w.quietUntil(end)))
	defer timer.Stop()
	for {
		sent, err := w.takeFrames(sink, m)
		switch {
		case errors.Is(err, errBehind):
			if err := w.reopen(); err != nil {
				return err
			}
			if w.cursor == nil {
				return w.expired(sink)
			}
			return nil
		case err != nil:
			return w.send(ctx, sink, nil, 0, err)
		case sent > 0:
			if err := w.flush(ctx, sink); err != nil {
				return err
			}
			timer.Reset(time.Until(w.quietUntil(end)))
			continue
		}
		select {
		case <-m.news:
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(time.Until(w.quietUntil(end)))
			revision, ok := m.progress()
			if !ok {
				continue // events come first
			}
			w.revision = max(w.revision, revision)
			if err := w.progress(ctx, sink); err != nil {
				return err
			}
		}
	}
}

// takeFrames puts what the hub has into the sink.
func (w *watcher) takeFrames(sink frameSink, m *waitingMember) (sent int, err error) {
	for sent < turnBytes {
		frames, revision, err := m.take(turnBytes - sent)
		w.revision = max(w.revision, revision)
		if err != nil || len(frames) == 0 {
			return sent, err
		}
		if err := sink.putFrames(frames); err != nil {
			return sent, err
		}
		sent += len(frames)
	}
	return sent, nil
}

// gather waits for more events to write at once, if there are so many watches and events that it pays.
func (w *watcher) gather(ctx context.Context) {
	gap := w.op.server.pace.Wrote(&w.pace)
	if gap == 0 {
		return
	}
	timer := time.NewTimer(gap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func eventType(t cache.ChangeType) watch.EventType {
	switch t {
	case cache.Added:
		return watch.Added
	case cache.Deleted:
		return watch.Deleted
	}
	return watch.Modified
}

// expired tells the watcher to list again.
func (w *watcher) expired(sink eventSink) error {
	return w.tell(sink, w.expiry())
}

// tell ends the stream with what went wrong.
func (w *watcher) tell(sink eventSink, event watchEvent) error {
	if err := sink.put(event); err != nil {
		return err
	}
	return sink.flush()
}

func (w *watcher) expiry() watchEvent {
	status := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.revision, w.op.endpoint.revision())).Status()
	return watchEvent{what: watch.Error, obj: &status}
}

// revision is how far the kind's cache has come.
func (r *registry) revision() int64 {
	if reader := r.started(); reader != nil {
		return reader.Revision()
	}
	return 0
}

// bookmarkObject is an empty object that carries a resourceVersion.
func (w *watcher) bookmarkObject(revision int64, initialEnd bool) runtime.Object {
	obj := w.op.endpoint.newObject()
	annotations := map[string]string{}
	// What upstream's internal types count is zero there, not missing.
	var replicas int32
	switch obj := obj.(type) {
	case *appsv1.DaemonSet:
		annotations[appsv1.DeprecatedTemplateGeneration] = "0"
	case *appsv1.Deployment:
		obj.Spec.Replicas = &replicas
	case *appsv1.ReplicaSet:
		obj.Spec.Replicas = &replicas
	case *appsv1.StatefulSet:
		obj.Spec.Replicas = &replicas
	}
	if initialEnd {
		annotations[metav1.InitialEventsAnnotationKey] = "true"
	}
	meta := accessor(obj)
	meta.SetResourceVersion(strconv.FormatInt(revision, 10))
	if len(annotations) > 0 {
		meta.SetAnnotations(annotations)
	}
	return obj
}

// duration is, where the client does not say it, up to twice the shortest time, at random, so that watchers do not come back all at once.
func (w *watcher) duration() time.Duration {
	if seconds := w.req.opts.TimeoutSeconds; seconds != nil && *seconds != 0 { // below zero it ends at once, as upstream
		// What has overflown is below zero as well. Not earlier than now: the last writes have until a little after the end.
		return max(0, time.Duration(*seconds)*time.Second)
	}
	least := w.op.server.cfg.MinWatch
	return least + rand.N(least)
}
