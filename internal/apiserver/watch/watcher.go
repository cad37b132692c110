package watch

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

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/apiserver/transport"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
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
	typ   watch.EventType
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

// Server serves all watches of one server.
type Server struct {
	Log *slog.Logger
	// Timeout is the longest duration of a request that is no watch.
	Timeout time.Duration
	// MinDuration is the shortest time after which a watch without timeoutSeconds ends.
	MinDuration time.Duration
	Transport   transport.Transport
	Pace        *taskpool.Pace
	Pool        *taskpool.Pool
	hubs        hubs
	Streams     streams
	// WaitGroup counts the goroutines and streams that the shutdown waits for.
	WaitGroup *sync.WaitGroup
	// Leaving is set when the server takes no new connections.
	Leaving *atomic.Bool
	// Lost is set while the server does not know the newest state; no watch begins then.
	Lost *atomic.Bool
}

var errLost = errors.New("this server cannot reach a majority of the store's members, and would show a watch nothing new")

// Watcher is one open watch.
type Watcher struct {
	server  *Server
	op      *verb.Operation
	req     *registry.ListRequest
	Initial []*cache.Entry
	// Bookmark ends the initial events with the bookmark that marks their end.
	Bookmark bool
	revision int64
	reader   cache.Reader
	Cursor   *cache.Cursor
	// OnInitialSent is called when the initial events are sent; afterwards a watch costs little.
	OnInitialSent func()
	// limitClient ends the client's connection when ctx does. The function that it returns is
	// called after the watch.
	limitClient func(ctx context.Context) (release func())
	// detach, if set, takes a watch that has caught up out of its request. It reports success; then
	// the watcher belongs to the taker.
	detach   func(end time.Time) bool
	detached bool
	pace     taskpool.Paced
}

// Open finds the revision from which the watch starts. An error is the request's answer.
func (s *Server) Open(ctx context.Context, op *verb.Operation, req *registry.ListRequest) (*Watcher, error) {
	if s.Lost.Load() {
		return nil, wire.TryAgain(errLost)
	}
	r := op.Endpoint.Registry
	reader, err := r.Cache(ctx)
	if err != nil {
		return nil, wire.StoreError(err)
	}
	w := &Watcher{server: s, op: op, req: req}
	rv, initial := req.Opts.ResourceVersion, req.Opts.SendInitialEvents
	switch {
	case initial != nil && *initial, initial == nil && (rv == "" || rv == "0"):
		if err := r.WaitFresh(ctx, reader, rv); err != nil {
			return nil, err
		}
		p, err := op.Collect(reader.Snapshot(), req, r.Prefix(op.Namespace), r.Prefix(op.Namespace), 0)
		if err != nil {
			return nil, err
		}
		w.Initial, w.revision = p.Entries, p.Revision
		r.Reads.Initial.Add(uint64(len(p.Entries)))
		w.Bookmark = initial != nil && *initial && req.Opts.AllowWatchBookmarks
	case rv == "" || rv == "0":
		if err := r.WaitFresh(ctx, reader, rv); err != nil {
			return nil, err
		}
		w.revision = reader.Revision()
	default:
		if w.revision, err = registry.ParseRevision(rv); err != nil {
			return nil, err
		}
	}
	w.reader = reader
	if w.Cursor, err = reader.Watch(w.revision, w.interest()); err != nil {
		if errors.Is(err, cache.ErrTooOld) {
			return w, nil // reported in the stream, as upstream does
		}
		return nil, wire.StoreError(err)
	}
	return w, nil
}

// interest returns what the watch's cursor selects.
func (w *Watcher) interest() cache.Interest {
	interest := cache.Interest{Namespace: w.op.Namespace, Labels: w.req.Labels, Fields: w.req.Fields}
	if name, ok := w.req.Fields.RequiresExactMatch("metadata.name"); ok {
		interest.Name = name
	}
	if w.req.FieldsOf != nil {
		interest.Fields = nil // the watcher itself evaluates them
	}
	return interest
}

// run sends events until ctx ends, the watch times out, or the sink fails.
func (w *Watcher) run(ctx context.Context, sink eventSink) error {
	if w.Cursor == nil {
		return w.expired(sink)
	}
	defer func() {
		if !w.detached && w.Cursor != nil { // otherwise the cursor belongs to a hub, or did
			w.Cursor.Close()
		}
	}()
	for _, entry := range w.Initial {
		if err := sink.put(watchEvent{typ: watch.Added, entry: entry, initial: true}); err != nil {
			return err
		}
	}
	w.Initial = nil
	if w.Bookmark {
		if err := sink.put(watchEvent{typ: watch.Bookmark, obj: w.bookmarkObject(w.revision, true)}); err != nil {
			return err
		}
	}
	if err := sink.flush(); err != nil {
		return err
	}
	if w.OnInitialSent != nil {
		w.OnInitialSent()
	}
	end := time.Now().Add(w.duration())
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if w.limitClient != nil {
		defer w.limitClient(ctx)()
	}
	for ctx.Err() == nil && !w.detached {
		if err := w.next(ctx, end, sink); err != nil {
			return err
		}
	}
	return nil
}

// next sends the next changes, or a bookmark after a while without any. A watch that has caught up
// continues in a hub, if it can.
func (w *Watcher) next(ctx context.Context, end time.Time, sink eventSink) error {
	if shared, ok := sink.(frameSink); ok && w.canShare(shared.encoder().format) {
		changes, revision, err := w.Cursor.Poll()
		if err != nil || len(changes) > 0 {
			return w.send(ctx, sink, changes, revision, err)
		}
		w.revision = max(w.revision, revision)
		if w.detach != nil {
			if w.detached = w.detach(end); w.detached {
				return nil
			}
		}
		m := newWaitingMember()
		if w.join(&m.member, shared.encoder(), false) {
			return w.follow(ctx, end, shared, m)
		}
	}
	bounded, cancel := context.WithDeadline(ctx, w.nextBookmark(end))
	defer cancel()
	changes, revision, err := w.Cursor.Next(bounded)
	if err != nil && bounded.Err() != nil && !errors.Is(err, cache.ErrTooOld) {
		return nil // the client has gone, or the watch has timed out
	}
	if err == nil && len(changes) == 0 {
		w.revision = max(w.revision, revision)
		return w.progress(ctx, sink)
	}
	return w.send(ctx, sink, changes, revision, err)
}

// nextBookmark returns when the next bookmark is due.
func (w *Watcher) nextBookmark(end time.Time) time.Time {
	until := time.Now().Add(bookmarkEvery)
	if last := end.Add(-bookmarkBeforeEnd); until.After(last) && last.After(time.Now()) {
		until = last
	}
	return until
}

// progress sends an idle watch a bookmark, if it takes bookmarks.
func (w *Watcher) progress(ctx context.Context, sink eventSink) error {
	if !w.req.Opts.AllowWatchBookmarks || ctx.Err() != nil {
		return nil
	}
	if err := sink.put(watchEvent{typ: watch.Bookmark, obj: w.bookmarkObject(w.revision, false)}); err != nil {
		return err
	}
	return sink.flush()
}

// send sends the result of a cursor.
func (w *Watcher) send(ctx context.Context, sink eventSink, changes []cache.Change, revision int64, err error) error {
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
	if w.req.FieldsOf != nil {
		if changes, err = w.req.Narrow(changes); err != nil {
			return errors.Join(w.sendLast(sink, watchEvent{typ: watch.Error, obj: wire.StatusOf(err)}), err)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	for i := range changes {
		if err := sink.put(watchEvent{typ: eventType(changes[i].Type), entry: changes[i].Entry}); err != nil {
			return err
		}
	}
	return w.flush(ctx, sink)
}

func (w *Watcher) flush(ctx context.Context, sink eventSink) error {
	if err := sink.flush(); err != nil {
		return err
	}
	w.pause(ctx)
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
func (w *Watcher) follow(ctx context.Context, end time.Time, sink frameSink, m *waitingMember) error {
	defer m.leave()
	timer := time.NewTimer(time.Until(w.nextBookmark(end)))
	defer timer.Stop()
	for {
		sent, err := w.takeFrames(sink, m)
		switch {
		case errors.Is(err, errFramesDropped):
			if err := w.reopen(); err != nil {
				return err
			}
			if w.Cursor == nil {
				return w.expired(sink)
			}
			return nil
		case err != nil:
			return w.send(ctx, sink, nil, 0, err)
		case sent > 0:
			if err := w.flush(ctx, sink); err != nil {
				return err
			}
			timer.Reset(time.Until(w.nextBookmark(end)))
			continue
		}
		select {
		case <-m.news:
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(time.Until(w.nextBookmark(end)))
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
func (w *Watcher) takeFrames(sink frameSink, m *waitingMember) (sent int, err error) {
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

// pause delays the next write so that it carries more events, if there are enough watches and
// events to make this worthwhile.
func (w *Watcher) pause(ctx context.Context) {
	gap := w.server.Pace.Wrote(&w.pace)
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
func (w *Watcher) expired(sink eventSink) error {
	return w.sendLast(sink, w.expiredEvent())
}

// sendLast ends the stream with an error event.
func (w *Watcher) sendLast(sink eventSink, event watchEvent) error {
	if err := sink.put(event); err != nil {
		return err
	}
	return sink.flush()
}

func (w *Watcher) expiredEvent() watchEvent {
	status := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.revision, w.op.Endpoint.Revision())).Status()
	return watchEvent{typ: watch.Error, obj: &status}
}

// bookmarkObject returns an empty object with a resourceVersion.
func (w *Watcher) bookmarkObject(revision int64, initialEnd bool) runtime.Object {
	obj := w.op.Endpoint.NewObject()
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
	meta := wire.Accessor(obj)
	meta.SetResourceVersion(strconv.FormatInt(revision, 10))
	if len(annotations) > 0 {
		meta.SetAnnotations(annotations)
	}
	return obj
}

// duration returns the requested duration. By default it is random, between MinWatch and twice as
// long, so that clients do not all come back at once.
func (w *Watcher) duration() time.Duration {
	// As upstream, a negative value ends the watch at once.
	if seconds := w.req.Opts.TimeoutSeconds; seconds != nil && *seconds != 0 {
		// An overflow is negative, too. Not before now: the final writes have until a little after
		// the end.
		return max(0, time.Duration(*seconds)*time.Second)
	}
	least := w.server.MinDuration
	return least + rand.N(least)
}
