package chaos

import (
	"context"
	"fmt"
	"maps"
	"sort"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// follower is a client that lists once and then watches, across broken connections, from where it was, as informers do. Each listing
// begins a new span, because what happened in between is not told.
type follower struct {
	name     string
	api      corev1client.ConfigMapInterface
	selector metav1.ListOptions // of label or field; matches says the same
	matches  func(*corev1.ConfigMap) bool
	spans    []*span
	err      error // what no server may do
}

// span is what a follower saw without a gap.
type span struct {
	from, to int64 // the listing's revision, and the last that an event or bookmark told of
	listed   map[string]int64
	events   []change
}

type change struct {
	kind     watch.EventType
	revision int64
	name     string
	value    string
	chosen   bool
}

func (f *follower) follow(ctx context.Context) {
	for ctx.Err() == nil && f.err == nil {
		s, err := f.list(ctx)
		if err != nil {
			pause(ctx)
			continue
		}
		f.spans = append(f.spans, s)
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
	case <-time.After(5 * time.Millisecond):
	}
}

func (f *follower) list(ctx context.Context) (*span, error) {
	list, err := f.api.List(ctx, f.selector)
	if err != nil {
		return nil, err
	}
	s := &span{listed: map[string]int64{}}
	s.from, err = strconv.ParseInt(list.ResourceVersion, 10, 64)
	s.to = s.from
	for i := range list.Items {
		s.listed[list.Items[i].Name], _ = strconv.ParseInt(list.Items[i].ResourceVersion, 10, 64)
	}
	return s, err
}

// watch follows one connection to its end; expired when the next one must begin with a list.
func (f *follower) watch(ctx context.Context, s *span) (expired bool) {
	opts := f.selector
	opts.ResourceVersion, opts.AllowWatchBookmarks = strconv.FormatInt(s.to, 10), true
	w, err := f.api.Watch(ctx, opts)
	if err != nil {
		pause(ctx)
		return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			err := apierrors.FromObject(e.Object)
			return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		}
		obj, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			f.err = fmt.Errorf("an event %s carries a %T", e.Type, e.Object)
			return true
		}
		if f.err = s.take(e.Type, obj); f.err != nil {
			return true
		}
	}
	return false
}

// take adds an event: their revisions only grow.
func (s *span) take(kind watch.EventType, obj *corev1.ConfigMap) error {
	revision, err := strconv.ParseInt(obj.ResourceVersion, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("%s of %s: resourceVersion %q is no number", kind, obj.Name, obj.ResourceVersion)
	case kind == watch.Bookmark && revision < s.to, kind != watch.Bookmark && revision <= s.to:
		return fmt.Errorf("%s of %s goes back in time: revision %d after %d", kind, obj.Name, revision, s.to)
	}
	s.to = revision
	if kind != watch.Bookmark {
		s.events = append(s.events, change{kind: kind, revision: revision, name: obj.Name, value: obj.Data[valueKey],
			chosen: obj.Labels["chosen"] != ""})
	}
	return nil
}

// log is the union of what all plain followers saw: one change a revision.
type log struct {
	changes []change // by revision
	spans   []*span
}

// union puts the followers' spans together. Two that tell different things of one revision are an error.
func union(followers []*follower) (*log, error) {
	l, at := &log{}, map[int64]change{}
	for _, f := range followers {
		l.spans = append(l.spans, f.spans...)
		for _, s := range f.spans {
			for _, c := range s.events {
				if other, ok := at[c.revision]; ok && other != c {
					return nil, fmt.Errorf("revision %d: %s saw %+v, somebody else %+v", c.revision, f.name, c, other)
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

// between are the changes after one revision up to another.
func (l *log) between(after, to int64) []change {
	i := sort.Search(len(l.changes), func(i int) bool { return l.changes[i].revision > after })
	j := sort.Search(len(l.changes), func(i int) bool { return l.changes[i].revision > to })
	return l.changes[i:j]
}

// reaches says up to where the log is complete after a revision.
func (l *log) reaches(after int64) int64 {
	to := after
	for _, s := range l.spans {
		if s.from <= to {
			to = max(to, s.to)
		}
	}
	return to
}

// state is what existed at a revision: name → version; ok is false when no follower watched then.
func (l *log) state(revision int64) (version map[string]int64, ok bool) {
	for _, s := range l.spans {
		if s.from > revision || s.to < revision {
			continue
		}
		version = maps.Clone(s.listed)
		for _, c := range s.events {
			switch {
			case c.revision > revision:
			case c.kind == watch.Deleted:
				delete(version, c.name)
			default:
				version[c.name] = c.revision
			}
		}
		return version, true
	}
	return nil, false
}
