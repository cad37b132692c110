package past

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/history"
	"github.com/knarr-project/knarr/internal/insight/timeline"
)

const (
	// DefaultLimit and MaxLimit bound the items of an answer. An answer may exceed its limit by the
	// items of one revision.
	DefaultLimit, MaxLimit = 100, 1000
	// maxScanned bounds the changes that one page looks at.
	maxScanned = 5000
)

// Question selects changes. Empty fields do not restrict.
type Question struct {
	Since, Until time.Time
	Namespace    string
	Group        string
	Resource     string
	Name         string
	// Related adds what belongs to the named object: what it owns, and events about all of these.
	Related  bool
	Limit    int
	Continue string
}

// Object names an object for authorization.
type Object struct {
	schema.GroupResource
	Namespace, Name string
}

// Reader is the caller of a question.
type Reader interface {
	// MayGet reports whether the caller may get an object.
	MayGet(Object) bool
	// Writes returns what the causal logs of all servers have about revisions, and why servers are
	// missing, by name.
	Writes(ctx context.Context, revisions []int64) (found []causes.Record, missing map[string]string, err error)
}

// read waits until the log has all writes before the call and the caller may read it. It returns a
// function to call after that.
func (p *Past) read(ctx context.Context) (done func(), err error) {
	if err := p.Place.Cache.Start(ctx); err != nil {
		return nil, wire.StoreError(err)
	}
	newest, err := p.Place.Store.Revision(ctx)
	if err == nil {
		err = p.Place.Cache.WaitFor(ctx, newest)
	}
	if err != nil {
		return nil, wire.StoreError(err)
	}
	select {
	case p.reading <- struct{}{}:
		return func() { <-p.reading }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// page is an answer in the making.
type page struct {
	*Past
	q       *Question
	reader  Reader
	belongs *family // with Related
	answer  *timeline.Answer
	upTo    int64
	// newer are the changes of keys that were met, which have the states after older ones.
	newer   map[string]history.Change
	scanned int
	last    int64 // revision of the change that was looked at last
	err     error
}

// check refuses a question about a kind that is not recorded.
func (p *Past) check(q *Question) error {
	if q.Resource == "" {
		return nil
	}
	r := p.Kinds.Registry(q.Group, q.Resource)
	if r != nil && !p.records(r) {
		return notRecorded(r.Resource)
	}
	return nil
}

// records reports whether changes of a built-in kind are recorded.
func (p *Past) records(r *registry.Registry) bool {
	return r.Place == p.Place && !r.Kind.Virtual && p.Recorded(r.Kind.Prefix+"/")
}

// notRecorded is the answer to a question about a kind that is not recorded.
func notRecorded(resource schema.GroupResource) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("the history of objects does not have %s: they are not recorded", resource),
	}}
}

// Timeline returns changes, newest first.
func (p *Past) Timeline(ctx context.Context, q *Question, reader Reader) (*timeline.Answer, error) {
	if err := p.check(q); err != nil {
		return nil, err
	}
	done, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	g := &page{Past: p, q: q, reader: reader, newer: map[string]history.Change{},
		answer: &timeline.Answer{Items: []timeline.Item{}, Gaps: []timeline.Gap{}, Reaches: p.Log.Reach()}}
	if q.Continue != "" {
		before, err := strconv.ParseInt(q.Continue, 10, 64)
		if err != nil || before < 2 {
			return nil, apierrors.NewBadRequest("continue: " + strconv.Quote(q.Continue) + " is not from an answer of this server")
		}
		g.upTo = before - 1
	}
	query := history.Query{UpTo: g.upTo, Since: q.Since, Until: q.Until, NewestFirst: true, Gaps: func(gap history.Gap) {
		g.answer.Gaps = append(g.answer.Gaps, timeline.Gap{From: gap.From, To: gap.To})
	}}
	if q.Related {
		if g.belongs, err = p.familyOf(ctx, q); err != nil {
			return nil, err
		}
		query.Namespace = g.belongs.namespace
	} else {
		query.Namespace = q.Namespace
		query.Kind = p.prefixOf(q.Group, q.Resource)
	}
	limit := q.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	err = p.Log.Each(ctx, query, func(c history.Change) bool {
		if c.Revision != g.last && (len(g.answer.Items) >= limit || g.scanned >= maxScanned) {
			g.answer.Continue = strconv.FormatInt(g.last, 10)
			return false
		}
		g.add(ctx, &c)
		return g.err == nil
	})
	if err = errors.Join(err, g.err); err != nil {
		return nil, err
	}
	return g.answer, g.nameUsers(ctx)
}

// prefixOf returns the prefix of a resource's keys; "" if there is none.
func (p *Past) prefixOf(group, resource string) string {
	if resource == "" {
		return ""
	}
	if r := p.Kinds.Registry(group, resource); r != nil {
		return r.Kind.Prefix
	}
	return "/registry/" + group + "/" + resource
}

// add adds a change to the page if the question selects it and it says something.
func (g *page) add(ctx context.Context, c *history.Change) {
	s := g.subject(c.Key)
	if !g.selects(&s) {
		return
	}
	g.scanned++
	g.last = c.Revision
	newer, met := g.newer[c.Key]
	g.newer[c.Key] = *c
	if s.isEvent() && c.Effect == history.Removed {
		return // it has expired
	}
	if !met && c.Effect != history.Removed {
		if newer, met, g.err = g.next(ctx, c); g.err != nil {
			return
		}
	}
	item := timeline.Item{
		Time: c.Time, Revision: c.Revision, Effect: c.Effect.String(),
		Group: s.Group, Resource: s.Resource, Namespace: s.Namespace, Name: s.Name,
	}
	after, err := g.after(ctx, &s, c, &newer, met)
	if s.isEvent() {
		item.Event = eventOf(after)
		if g.belongs != nil && !g.belongs.concerns(item.Event) {
			return
		}
	}
	if !g.reader.MayGet(Object{s.GroupResource, s.Namespace, s.Name}) {
		g.answer.Hidden++
		return
	}
	before, beforeErr := g.before(ctx, &s, c)
	doc := after
	if doc == nil {
		doc = before
	}
	describe(&item, &s, doc)
	if c.Effect != history.Removed {
		item.Manager, item.Subresource = after.writer(before)
	}
	if c.Effect == history.Changed && !s.isEvent() {
		if err = errors.Join(err, beforeErr); err != nil {
			item.Unknown = "the states before and after the change are not both known"
		} else {
			item.Changes, item.More = timeline.Compare(before, after)
			item.Changes = append(item.Changes, hiddenChanges(c.Touched)...)
		}
		if len(item.Changes) == 0 && item.Unknown == "" {
			return // noise
		}
	}
	g.answer.Items = append(g.answer.Items, item)
}

func hiddenChanges(touched []string) (list []timeline.Change) {
	for _, path := range touched {
		list = append(list, timeline.Change{Path: path, Hidden: true})
	}
	return list
}

// selects reports whether the question is about the object.
func (g *page) selects(s *subject) bool {
	q := g.q
	if g.belongs != nil {
		return g.belongs.keys[s.key] || s.isEvent() && s.Namespace == g.belongs.events
	}
	return (q.Namespace == "" || s.Namespace == q.Namespace) && (q.Name == "" || s.Name == q.Name) &&
		(q.Resource == "" || s.GroupResource == schema.GroupResource{Group: q.Group, Resource: q.Resource})
}

// next returns the next newer change of the same object, if there is one.
func (p *Past) next(ctx context.Context, c *history.Change) (newer history.Change, met bool, err error) {
	err = p.Log.Each(ctx, history.Query{After: c.Revision, Key: c.Key}, func(found history.Change) bool {
		newer, met = found, true
		return false
	})
	return newer, met, err
}

// before returns the state that a change replaced; nil for a creation.
func (p *Past) before(ctx context.Context, s *subject, c *history.Change) (document, error) {
	if c.Effect == history.Created {
		return nil, nil
	}
	if c.Lost {
		return nil, errNoState
	}
	stored, err := p.unsealed(ctx, c.Key, c.Before)
	if err != nil {
		return nil, err
	}
	return s.document(stored, c.BeforeRevision)
}

// after returns the state that a change made; nil for a removal. It is what the next newer change
// replaced, or the present state.
func (p *Past) after(ctx context.Context, s *subject, c, newer *history.Change, met bool) (document, error) {
	if c.Effect == history.Removed {
		return nil, nil
	}
	if met && !newer.Lost && newer.BeforeRevision == c.Revision {
		return p.before(ctx, s, newer)
	}
	stored, err := p.stateAt(ctx, s, c.Revision)
	if err != nil {
		return nil, err
	}
	return s.document(stored, c.Revision)
}

// stateAt returns the state that a revision made: from the cache if it is the newest, else from the
// store while that has it.
func (p *Past) stateAt(ctx context.Context, s *subject, revision int64) ([]byte, error) {
	if s.registry != nil {
		if reader := s.registry.OpenCache(); reader != nil {
			if e, ok := reader.Snapshot().Get(s.key); ok && e.Revision == revision {
				return e.Stored(), nil
			}
		}
	}
	kv, _, err := p.Place.Store.Get(ctx, s.key, revision)
	if err != nil || kv == nil || kv.ModRevision != revision {
		return nil, errNoState
	}
	return kv.Value, nil
}

// describe adds what the object's document tells.
func describe(item *timeline.Item, s *subject, doc document) {
	if s.registry != nil {
		item.Version, item.Kind = s.registry.Hub.Version, s.registry.Hub.Kind
	} else if doc != nil {
		item.Version, item.Kind = doc.gvk().Version, doc.gvk().Kind
	}
	if doc != nil {
		item.UID = string(doc.object().GetUID())
	}
}

// eventOf returns what an Event says; nil if its state is not known.
func eventOf(doc document) *timeline.Event {
	if doc == nil {
		return nil
	}
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(doc, fields...)
		return s
	}
	e := &timeline.Event{
		Type: text("type"), Reason: text("reason"), Message: text("message"), Component: text("source", "component"),
		Regarding: timeline.Reference{Kind: text("involvedObject", "kind"), Namespace: text("involvedObject", "namespace"), Name: text("involvedObject", "name"), UID: text("involvedObject", "uid")},
	}
	if e.Component == "" {
		e.Component = text("reportingComponent")
	}
	e.Count, _, _ = unstructured.NestedInt64(doc, "count")
	if n, ok, _ := unstructured.NestedInt64(doc, "series", "count"); ok {
		e.Count = n
	}
	e.Count = max(1, e.Count)
	e.Message = timeline.Cut(e.Message)
	return e
}

// nameUsers adds the users of changes that the causal logs have.
func (g *page) nameUsers(ctx context.Context) error {
	at := map[int64][]*timeline.Item{}
	for i := range g.answer.Items {
		if item := &g.answer.Items[i]; item.Event == nil { // their writes are not recorded
			at[item.Revision] = append(at[item.Revision], item)
		}
	}
	if len(at) == 0 {
		return nil
	}
	records, missing, err := g.reader.Writes(ctx, slices.Collect(maps.Keys(at)))
	g.answer.Missing = missing
	for i := range records {
		r := &records[i]
		for _, item := range at[r.Revision] {
			if item.Group != r.Group || item.Resource != r.Resource || item.Name != r.Name || item.Namespace != r.Namespace {
				continue
			}
			item.Actor, item.Subresource = r.Actor, r.Subresource
			if r.Manager != "" {
				item.Manager = r.Manager
			}
		}
	}
	return err
}
