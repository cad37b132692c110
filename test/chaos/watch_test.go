package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// follower is a client that reads the initial state and then watches. After a broken connection it
// continues where it was, as informers do. Each new start begins a new span, because the changes in
// between are not delivered.
type follower struct {
	name     string
	h        *history
	api      api
	begins   beginning
	random   *rand.Rand
	selector metav1.ListOptions // by label or field; matches says the same
	matches  func(item) bool
	spans    []*span
	err      error        // an error that no server may cause
	at       atomic.Int64 // the last revision
}

// beginning is the way in which a follower starts a span.
type beginning int

const (
	byList    beginning = iota // a list, then a watch from its revision
	byInitial                  // a watch with initial events
	resumed                    // a watch for a while from a known revision
)

// span is what a follower saw without a gap.
type span struct {
	from, to int64           // revision of the listing, and of the last event or bookmark
	listed   map[string]mark // nil if the span has no listing
	events   []change
	opened   bool // the server has accepted a watch from there
}

type change struct {
	kind     watch.EventType
	revision int64
	item     item // without its version, which is the revision
}

func (f *follower) follow(ctx context.Context) {
	for ctx.Err() == nil && f.err == nil {
		switch f.begins {
		case resumed:
			f.resume(ctx)
			continue
		case byInitial:
			if !f.initial(ctx) {
				continue
			}
		default:
			s, err := f.list(ctx)
			if err != nil {
				pause(ctx)
				continue
			}
			f.spans = append(f.spans, s)
		}
		s := f.spans[len(f.spans)-1]
		for ctx.Err() == nil && f.err == nil {
			if expired := f.watch(ctx, s); expired {
				break
			}
		}
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

func (f *follower) list(ctx context.Context) (*span, error) {
	asked := f.h.now()
	items, meta, err := f.api.list(ctx, f.selector)
	if err != nil {
		f.h.expect(asked, err, "list of "+f.name)
		return nil, err
	}
	s := &span{listed: map[string]mark{}}
	s.from, err = strconv.ParseInt(meta.ResourceVersion, 10, 64)
	s.to = s.from
	for _, i := range items {
		s.listed[i.name] = i.mark()
	}
	f.h.learn(s.from)
	f.at.Store(s.from)
	return s, err
}

// resume watches for a while from a known revision, new or old.
func (f *follower) resume(ctx context.Context) {
	revision := f.h.revision(f.random)
	if revision == "" {
		pause(ctx)
		return
	}
	s := &span{}
	s.from, _ = strconv.ParseInt(revision, 10, 64)
	s.to = s.from
	ctx, cancel := context.WithTimeout(ctx, time.Duration(f.random.IntN(int(calm))))
	defer cancel()
	f.watch(ctx, s)
	f.spans = append(f.spans, s)
}

// initial opens a watch with initial events and follows it to its end. ok means that it reached the
// bookmark after the initial events.
func (f *follower) initial(ctx context.Context) (ok bool) {
	opts, yes := f.selector, true
	opts.SendInitialEvents, opts.AllowWatchBookmarks, opts.ResourceVersionMatch = &yes, true, metav1.ResourceVersionMatchNotOlderThan
	l := listing{asked: f.h.now(), items: map[string]mark{}}
	if f.random.IntN(2) == 0 {
		opts.ResourceVersion = f.h.revision(f.random)
		l.wanted, _ = strconv.ParseInt(opts.ResourceVersion, 10, 64)
	}
	l.consistent = opts.ResourceVersion == ""
	w, err := f.api.watch(ctx, opts)
	if err != nil {
		f.h.expect(l.asked, err, "watch with initial events of "+f.name, http.StatusGone)
		pause(ctx)
		return false
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			f.failed(ctx, l.asked, e.Object)
			pause(ctx)
			return false
		}
		if e.Type == watch.Bookmark {
			bookmark, err := meta.Accessor(e.Object)
			if err != nil || bookmark.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				f.err = fmt.Errorf("a bookmark %v before the end of the initial events (%v)", e.Object, err)
				return false
			}
			if l.revision, f.err = strconv.ParseInt(bookmark.GetResourceVersion(), 10, 64); f.err != nil {
				return false
			}
			break
		}
		i, err := f.api.read(e.Object)
		if err != nil || e.Type != watch.Added {
			f.err = fmt.Errorf("an initial event %s of %v: %v", e.Type, i, err)
			return false
		}
		l.add([]item{i})
	}
	if l.revision == 0 {
		return false // it ended before the bookmark
	}
	f.h.mu.Lock()
	f.h.known = append(f.h.known, l.revision)
	if f.matches == nil {
		f.h.lists = append(f.h.lists, l)
	}
	f.h.mu.Unlock()
	s := &span{from: l.revision, to: l.revision, listed: l.items}
	f.at.Store(l.revision)
	f.spans = append(f.spans, s)
	f.take(ctx, l.asked, w, s)
	return true
}

// watch follows one connection to its end; expired means that the next watch needs a new start.
func (f *follower) watch(ctx context.Context, s *span) (expired bool) {
	opts := f.selector
	opts.ResourceVersion, opts.AllowWatchBookmarks = strconv.FormatInt(s.to, 10), true
	asked := f.h.now()
	w, err := f.api.watch(ctx, opts)
	if err != nil {
		f.h.expect(asked, err, "watch of "+f.name, http.StatusGone)
		pause(ctx)
		return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	}
	defer w.Stop()
	s.opened = true
	return f.take(ctx, asked, w, s)
}

// failed examines a watch's ERROR event; expired means that the next watch needs a new start. The
// client makes such an event itself when its context or connection ends.
func (f *follower) failed(ctx context.Context, asked int64, status runtime.Object) (expired bool) {
	err := apierrors.FromObject(status)
	expired = apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	if !expired && ctx.Err() == nil && !(f.h.several && lostLink(err)) {
		f.h.addAnomaly(asked, fmt.Sprintf("watch of %s: ERROR event: %v", f.name, err), true)
	}
	return expired
}

// lostLink reports that the client made an ERROR event because a link of the LAN is dead. An event
// that it could not decode has another text.
func lostLink(err error) bool {
	if !apierrors.HasStatusCause(err, "ClientWatchDecoding") {
		return false
	}
	for _, text := range []string{"client connection lost", "connection timed out", "connection reset", "no route to host"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// take adds the events of a watch to a span.
func (f *follower) take(ctx context.Context, asked int64, w watch.Interface, s *span) (expired bool) {
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return f.failed(ctx, asked, e.Object)
		}
		i, err := f.api.read(e.Object)
		if err != nil {
			f.err = fmt.Errorf("an event %s: %w", e.Type, err)
			return true
		}
		if f.err = s.take(e.Type, i); f.err != nil {
			return true
		}
		f.h.learn(s.to)
		f.at.Store(s.to)
	}
	return false
}

// take adds an event. Revisions must increase.
func (s *span) take(kind watch.EventType, i item) error {
	revision, err := strconv.ParseInt(i.version, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("%s of %s: resourceVersion %q is no number", kind, i.name, i.version)
	case kind == watch.Bookmark && revision < s.to, kind != watch.Bookmark && revision <= s.to:
		return fmt.Errorf("%s of %s goes back in time: revision %d after %d", kind, i.name, revision, s.to)
	}
	s.to = revision
	if kind != watch.Bookmark {
		i.version = ""
		s.events = append(s.events, change{kind: kind, revision: revision, item: i})
	}
	return nil
}

// log is the union of the events of all plain followers: one change per revision.
type log struct {
	changes []change // by revision
	spans   []*span
}

// union merges the followers' spans. Two different changes at one revision are an error.
func union(followers []*follower) (*log, error) {
	l, at := &log{}, map[int64]change{}
	for _, f := range followers {
		l.spans = append(l.spans, f.spans...)
		for _, s := range f.spans {
			for _, c := range s.events {
				if other, ok := at[c.revision]; ok && other != c {
					return nil, fmt.Errorf("revision %d: %s saw %+v, another watcher %+v", c.revision, f.name, c, other)
				}
				at[c.revision] = c
			}
		}
	}
	for _, c := range at {
		l.changes = append(l.changes, c)
	}
	sort.Slice(l.changes, func(i, j int) bool { return l.changes[i].revision < l.changes[j].revision })
	sort.Slice(l.spans, func(i, j int) bool { return l.spans[i].from < l.spans[j].from })
	return l, nil
}

// between returns the changes after one revision up to another.
func (l *log) between(after, to int64) []change {
	i := sort.Search(len(l.changes), func(i int) bool { return l.changes[i].revision > after })
	j := sort.Search(len(l.changes), func(i int) bool { return l.changes[i].revision > to })
	return l.changes[i:max(i, j)]
}

// reaches returns the revision up to which the log is complete, starting after the given one.
func (l *log) reaches(after int64) int64 {
	to := after
	for _, s := range l.spans {
		if s.from <= to {
			to = max(to, s.to)
		}
	}
	return to
}

// state returns the objects at a revision by name; ok is false if no follower watched then.
func (l *log) state(revision int64) (is map[string]mark, ok bool) {
	for _, s := range l.spans {
		if s.listed == nil || s.from > revision || s.to < revision {
			continue
		}
		is = maps.Clone(s.listed)
		for _, c := range s.events {
			switch {
			case c.revision > revision:
			case c.kind == watch.Deleted:
				delete(is, c.item.name)
			default:
				is[c.item.name] = mark{c.revision, c.item.chosen}
			}
		}
		return is, true
	}
	return nil, false
}
