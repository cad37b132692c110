package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/apiserver/transport"
	"github.com/knarr-project/knarr/internal/cache"
)

const (
	// bookmarkEvery is how often an idle watch gets a bookmark.
	bookmarkEvery = time.Minute
	// bookmarkBeforeEnd is how long before its end a watch gets its last bookmark.
	bookmarkBeforeEnd = 2 * time.Second
)

// watchEvent is one event for one watcher: an entry, or the object of a bookmark or an error.
type watchEvent struct {
	what  watch.EventType
	entry *cache.Entry
	obj   runtime.Object

	// The object existed when the watch began; its encoding is kept, as lists use it too.
	initial bool
}

// eventSink takes a watcher's events; flush sends those that were put so far.
type eventSink interface {
	put(watchEvent) error
	flush() error
}

// watches serves all watches of one server.
type watches struct {
	log *slog.Logger
	// timeout is how long a request may take that is no watch.
	timeout time.Duration
	// least is the shortest time after which a watch without timeoutSeconds ends.
	least     time.Duration
	transport transport.Transport
	pace      *taskpool.Pace
	pool      *taskpool.Pool
	hubs      hubs
	streams   streams
	// wg counts the goroutines and streams that the server's end waits for.
	wg *sync.WaitGroup
	// leaving is set when the server takes no new connections.
	leaving *atomic.Bool
}

// watcher is one open watch.
type watcher struct {
	of      *watches
	op      *operation
	req     *listRequest
	initial []*cache.Entry
	// bookmark ends the initial events with the bookmark that marks their end.
	bookmark bool
	revision int64
	reader   cache.Reader
	cursor   *cache.Cursor
	// begun is called when the initial events are sent; afterwards a watch costs little.
	begun func()
	// bound ends the client's connection when ctx does. The function that it returns is called
	// after the watch.
	bound func(ctx context.Context) (release func())
	// settle, if set, takes a watch that has caught up out of its request. It reports success; then
	// the watcher belongs to the taker.
	settle  func(end time.Time) bool
	settled bool
	pace    taskpool.Paced
}

// open finds the revision from which the watch starts. An error is the request's answer.
func (s *watches) open(ctx context.Context, op *operation, req *listRequest) (*watcher, error) {
	r := op.endpoint.registry
	reader, err := r.cache(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	w := &watcher{of: s, op: op, req: req}
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
			return w, nil // reported in the stream, as upstream does
		}
		return nil, storeError(err)
	}
	return w, nil
}

// interest returns what the watch's cursor selects.
func (w *watcher) interest() cache.Interest {
	interest := cache.Interest{Namespace: w.op.namespace, Labels: w.req.labels, Fields: w.req.fields}
	if name, ok := w.req.fields.RequiresExactMatch("metadata.name"); ok {
		interest.Name = name
	}
	if w.req.fieldsOf != nil {
		interest.Fields = nil // the watcher itself evaluates them
	}
	return interest
}

// run sends events until ctx ends, the watch times out, or the sink fails.
func (w *watcher) run(ctx context.Context, sink eventSink) error {
	if w.cursor == nil {
		return w.expired(sink)
	}
	defer func() {
		if !w.settled && w.cursor != nil { // otherwise the cursor belongs to a hub, or did
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

// next sends the next changes, or a bookmark after a while without any. A watch that has caught up
// continues in a hub, if it can.
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
		return nil // the client has gone, or the watch has timed out
	}
	if err == nil && len(changes) == 0 {
		w.revision = max(w.revision, revision)
		return w.progress(ctx, sink)
	}
	return w.send(ctx, sink, changes, revision, err)
}

// quietUntil returns when the next bookmark is due.
func (w *watcher) quietUntil(end time.Time) time.Time {
	until := time.Now().Add(bookmarkEvery)
	if last := end.Add(-bookmarkBeforeEnd); until.After(last) && last.After(time.Now()) {
		until = last
	}
	return until
}

// progress sends an idle watch a bookmark, if it takes bookmarks.
func (w *watcher) progress(ctx context.Context, sink eventSink) error {
	if !w.req.opts.AllowWatchBookmarks || ctx.Err() != nil {
		return nil
	}
	if err := sink.put(watchEvent{what: watch.Bookmark, obj: w.bookmarkObject(w.revision, false)}); err != nil {
		return err
	}
	return sink.flush()
}

// send sends the result of a cursor.
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

// frameSink is a sink that also takes encoded frames.
type frameSink interface {
	eventSink
	encoder() *eventEncoder
	putFrames(frames []byte) error
}

// waitingMember is a hub's member with a goroutine that waits for frames.
type waitingMember struct {
	member
	task taskpool.Task
	news chan struct{}
}

func newWaitingMember() *waitingMember {
	m := &waitingMember{news: make(chan struct{}, 1)}
	m.task = taskpool.NewTask(func() time.Duration {
		select {
		case m.news <- struct{}{}:
		default:
		}
		return taskpool.Idle
	})
	m.member.task = &m.task
	return m
}

// follow sends a hub's frames until the watch ends, or until it is too slow for the hub. Then it
// continues with its own cursor.
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

// takeFrames moves the hub's frames into the sink.
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

// gather delays the next write so that it carries more events, if there are enough watches and
// events to make this worthwhile.
func (w *watcher) gather(ctx context.Context) {
	gap := w.of.pace.Wrote(&w.pace)
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

// expired sends the error that makes the client list again.
func (w *watcher) expired(sink eventSink) error {
	return w.tell(sink, w.expiry())
}

// tell ends the stream with an error event.
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

// revision returns the revision of the kind's cache.
func (r *registry) revision() int64 {
	if reader := r.started(); reader != nil {
		return reader.Revision()
	}
	return 0
}

// bookmarkObject returns an empty object with a resourceVersion.
func (w *watcher) bookmarkObject(revision int64, initialEnd bool) runtime.Object {
	obj := w.op.endpoint.newObject()
	annotations := map[string]string{}
	// Upstream's internal types have no pointers for these counts, so they appear as zero.
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

// duration returns the requested duration. By default it is random, between MinWatch and twice as
// long, so that clients do not all come back at once.
func (w *watcher) duration() time.Duration {
	// As upstream, a negative value ends the watch at once.
	if seconds := w.req.opts.TimeoutSeconds; seconds != nil && *seconds != 0 {
		// An overflow is negative, too. Not before now: the final writes have until a little after
		// the end.
		return max(0, time.Duration(*seconds)*time.Second)
	}
	least := w.of.least
	return least + rand.N(least)
}
