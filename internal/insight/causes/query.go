package causes

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/insight/because"
)

// Pause is how long after its last Record a closure still grows: a write that names a cause of
// hours ago, such as the status of a pod that fails in the night, did not come of that cause.
const Pause = time.Hour

// MaxAnswer bounds the Records of one answer.
const MaxAnswer = 5000

// Answer is the answer of an API server about its own log.
type Answer struct {
	Records []Record `json:"records"`
	// Hidden counts the Records of objects that the user may not get.
	Hidden int `json:"hidden,omitempty"`
	// Truncated says that there are more Records than an answer has.
	Truncated bool `json:"truncated,omitempty"`
}

// visit calls fn with the Records of each segment that wanted selects. more reports after each
// segment whether to go on.
func (l *Log) visit(ctx context.Context, newestFirst bool, wanted func(*about) bool, fn func(*Record), more func(*about) bool) error {
	view, err := l.view(ctx)
	if err != nil {
		return err
	}
	if newestFirst {
		slices.Reverse(view)
	}
	for i := range view {
		if err := ctx.Err(); err != nil {
			return err
		}
		a, err := index(&view[i])
		if err != nil {
			return err
		}
		if !a.firstTime.IsZero() && wanted(a) {
			if err := each(&view[i], func(r *Record) bool { fn(r); return true }); err != nil {
				return err
			}
		}
		if !more(a) {
			return nil
		}
	}
	return nil
}

// OfObject returns up to limit Records of an object, newest first.
func (l *Log) OfObject(ctx context.Context, object Object, limit int) ([]Record, error) {
	limit = bound(limit)
	var found, here []Record
	err := l.visit(ctx, true,
		func(a *about) bool { return a.mayHave(&object) },
		func(r *Record) {
			if r.Object == object {
				here = append(here, *r)
			}
		},
		func(*about) bool {
			slices.SortStableFunc(here, func(a, b Record) int { return cmp.Compare(b.Revision, a.Revision) })
			found, here = append(found, here...), nil
			return len(found) < limit
		})
	return found[:min(limit, len(found))], err
}

// OfRequest returns the Records of a request by its audit ID, in the order of their revisions.
func (l *Log) OfRequest(ctx context.Context, request string) ([]Record, error) {
	var found []Record
	had := 0
	err := l.visit(ctx, true,
		func(*about) bool { return true },
		func(r *Record) {
			if r.Request == request && request != "" && len(found) < MaxAnswer {
				found = append(found, *r)
			}
		},
		func(*about) bool {
			more := len(found) == 0 || len(found) > had // its writes lie together
			had = len(found)
			return more
		})
	sortByRevision(found)
	return found, err
}

// At returns the Record of a revision.
func (l *Log) At(ctx context.Context, revision int64) (found Record, ok bool, err error) {
	err = l.visit(ctx, true,
		func(a *about) bool { return a.first <= revision && revision <= a.last },
		func(r *Record) {
			if r.Revision == revision {
				found, ok = *r, true
			}
		},
		func(*about) bool { return !ok })
	return found, ok, err
}

// Of returns the Records of the revisions, in their order.
func (l *Log) Of(ctx context.Context, revisions []int64) (found []Record, err error) {
	if len(revisions) == 0 {
		return nil, nil
	}
	wanted := make(map[int64]bool, len(revisions))
	for _, revision := range revisions {
		wanted[revision] = true
	}
	err = l.visit(ctx, true,
		func(a *about) bool { return anyBetween(wanted, a.first, a.last) },
		func(r *Record) {
			if wanted[r.Revision] && len(found) < MaxAnswer {
				found = append(found, *r)
			}
		},
		func(*about) bool { return len(found) < len(revisions) })
	sortByRevision(found)
	return found, err
}

// Forward returns the Records of the roots and all that came of them, in the order of their
// revisions. It returns at most limit Records; 0 is MaxAnswer.
func (l *Log) Forward(ctx context.Context, roots []int64, limit int) ([]Record, error) {
	if len(roots) == 0 {
		return nil, nil
	}
	c := closure{limit: bound(limit), members: map[int64]bool{}, kept: map[int64]bool{}, objects: map[string]causer{}}
	for _, root := range roots {
		c.members[root] = true
	}
	first := slices.Min(roots)
	view, err := l.view(ctx)
	if err != nil {
		return nil, err
	}
	for i := range view {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, err := index(&view[i])
		switch {
		case err != nil:
			return nil, err
		case a.last < first:
			continue
		case !c.newest.IsZero() && a.firstTime.Sub(c.newest) > Pause:
			return c.sorted(), nil
		}
		// Records of concurrent writes may be out of order, so a pass may find causes of Records
		// that it has passed.
		for grew := true; grew && len(c.found) < c.limit; {
			n := len(c.found)
			if err := each(&view[i], c.take); err != nil {
				return nil, err
			}
			grew = len(c.found) > n
		}
	}
	return c.sorted(), nil
}

// closure collects a forward closure.
type closure struct {
	limit   int
	members map[int64]bool // revisions of the closure
	kept    map[int64]bool // those of found
	found   []Record
	newest  time.Time
	objects map[string]causer // by UID
}

// causer is the newest write of an object in a closure.
type causer struct {
	revision int64
	at       time.Time
}

// Reaction is how soon after a write a component without causes must have written, so that its
// write is inferred to come of the other one.
const Reaction = 10 * time.Second

// infer guesses the cause of a component that gives none, such as a controller or a node agent of
// upstream: a recent write of the same object, or of the controller that owns it.
func (c *closure) infer(r *Record) (cause int64, ok bool) {
	if r.Because.Len() > 0 || !strings.HasPrefix(r.Actor, "system:") {
		return 0, false
	}
	for _, uid := range []string{r.UID, r.Owner} {
		from, known := c.objects[uid]
		if wait := r.Time.Sub(from.at); known && uid != "" && from.revision < r.Revision && wait >= 0 && wait <= Reaction {
			return from.revision, true
		}
	}
	return 0, false
}

// take keeps a Record that belongs to the closure; false ends the pass.
func (c *closure) take(r *Record) bool {
	if c.kept[r.Revision] {
		return true
	}
	belongs := c.members[r.Revision]
	if cause, ok := c.infer(r); ok && !belongs {
		guess := *r
		guess.Because, guess.Inferred = because.Of(cause), true
		r, belongs = &guess, true
	}
	for _, cause := range r.Because.All() {
		belongs = belongs || c.members[cause]
	}
	if !belongs || !c.newest.IsZero() && r.Time.Sub(c.newest) > Pause {
		return true
	}
	c.members[r.Revision], c.kept[r.Revision] = true, true
	c.found = append(c.found, *r)
	if have := c.objects[r.UID]; r.UID != "" && have.revision < r.Revision {
		c.objects[r.UID] = causer{r.Revision, r.Time}
	}
	if r.Time.After(c.newest) {
		c.newest = r.Time
	}
	return len(c.found) < c.limit
}

func (c *closure) sorted() []Record {
	sortByRevision(c.found)
	return c.found
}

// Backward returns the Records of the revisions and all that led to them, in the order of their
// revisions. Causes that the log has lost, or never had, are missing.
func (l *Log) Backward(ctx context.Context, revisions []int64, limit int) ([]Record, error) {
	limit = bound(limit)
	wanted, kept := map[int64]bool{}, map[int64]bool{}
	for _, revision := range revisions {
		wanted[revision] = true
	}
	var found []Record
	view, err := l.view(ctx)
	if err != nil {
		return nil, err
	}
	slices.Reverse(view)
	for i := range view {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, err := index(&view[i])
		if err != nil {
			return nil, err
		}
		for has := anyBetween(wanted, a.first, a.last); has; {
			n := len(found)
			err := each(&view[i], func(r *Record) bool {
				if !wanted[r.Revision] {
					return true
				}
				delete(wanted, r.Revision)
				kept[r.Revision] = true
				found = append(found, *r)
				for _, cause := range r.Because.All() {
					if !kept[cause] {
						wanted[cause] = true
					}
				}
				return len(found) < limit
			})
			if err != nil {
				return nil, err
			}
			has = len(found) > n && len(found) < limit && anyBetween(wanted, a.first, a.last)
		}
		if len(wanted) == 0 || len(found) >= limit {
			break
		}
	}
	sortByRevision(found)
	return found, nil
}

func anyBetween(revisions map[int64]bool, first, last int64) bool {
	for revision := range revisions {
		if first <= revision && revision <= last {
			return true
		}
	}
	return false
}

func bound(limit int) int {
	if limit <= 0 || limit > MaxAnswer {
		return MaxAnswer
	}
	return limit
}

func sortByRevision(records []Record) {
	slices.SortFunc(records, func(a, b Record) int { return cmp.Compare(a.Revision, b.Revision) })
}
