package past

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/insight/history"
	"github.com/knarr-project/knarr/internal/insight/timeline"
)

// maxAnswer bounds the documents of an answer, in bytes.
const maxAnswer = 8 << 20

// beyondReach refuses a time before the log's reach.
func (p *Past) beyondReach(at time.Time) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("the history of objects does not reach back to %s: the oldest possible time is %s",
		at.UTC().Format(time.RFC3339), p.Log.Reach().Add(time.Second).UTC().Format(time.RFC3339)))
}

// revisionAt is history.Log.RevisionAt with errors for the caller.
func (p *Past) revisionAt(ctx context.Context, at time.Time) (int64, error) {
	if at.After(p.Clock().Add(time.Minute)) {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("%s is in the future", at.UTC().Format(time.RFC3339)))
	}
	revision, known, err := p.Log.RevisionAt(ctx, at)
	if err == nil && !known {
		err = p.beyondReach(at)
	}
	return revision, err
}

// span is the first change of a key in a range, and what was touched in all of it.
type span struct {
	first   history.Change
	touched map[string]bool
}

// Net returns how objects differ between two moments.
func (p *Past) Net(ctx context.Context, q *Question, reader Reader) (*timeline.NetAnswer, error) {
	if q.Since.IsZero() {
		return nil, apierrors.NewBadRequest("since must be given")
	}
	if err := p.check(q); err != nil {
		return nil, err
	}
	done, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	answer := &timeline.NetAnswer{Items: []timeline.Difference{}, Gaps: []timeline.Gap{}, From: q.Since.UTC(), To: p.Clock().UTC()}
	g := &page{Past: p, q: q, reader: reader}
	query := history.Query{Namespace: q.Namespace, Kind: p.prefixOf(q.Group, q.Resource), Gaps: func(gap history.Gap) {
		answer.Gaps = append(answer.Gaps, timeline.Gap{From: gap.From, To: gap.To})
	}}
	if query.After, err = p.revisionAt(ctx, q.Since); err != nil {
		return nil, err
	}
	if !q.Until.IsZero() {
		answer.To = q.Until.UTC()
		if query.UpTo, err = p.revisionAt(ctx, q.Until); err != nil {
			return nil, err
		}
		if query.UpTo <= query.After {
			return answer, nil
		}
	}
	if q.Related {
		if g.belongs, err = p.familyOf(ctx, q); err != nil {
			return nil, err
		}
		query.Kind = ""
	}
	spans, err := g.spans(ctx, query, answer)
	if err != nil {
		return nil, err
	}
	later := map[string]history.Change{}
	if query.UpTo > 0 {
		after := query
		after.After, after.UpTo = query.UpTo, 0
		err = p.Log.Each(ctx, after, func(c history.Change) bool {
			if _, known := later[c.Key]; spans[c.Key] != nil && !known {
				later[c.Key] = cloned(c)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return answer, g.differences(ctx, spans, later, query.UpTo, answer)
}

func cloned(c history.Change) history.Change {
	c.Before = bytes.Clone(c.Before)
	return c
}

// spans reads the changes of the range.
func (g *page) spans(ctx context.Context, query history.Query, answer *timeline.NetAnswer) (map[string]*span, error) {
	spans := map[string]*span{}
	err := g.Log.Each(ctx, query, func(c history.Change) bool {
		known := spans[c.Key]
		if known == nil {
			s := g.subject(c.Key)
			if s.isEvent() || !g.selects(&s) {
				return true
			}
			if !g.reader.MayGet(Object{s.GroupResource, s.Namespace, s.Name}) {
				answer.Hidden++
				return true
			}
			if len(spans) >= maxScanned {
				answer.Truncated = true
				return true
			}
			known = &span{first: cloned(c), touched: map[string]bool{}}
			spans[c.Key] = known
		}
		for _, path := range c.Touched {
			known.touched[path] = true
		}
		return true
	})
	return spans, err
}

// differences adds the objects that differ at the end of the range.
func (g *page) differences(ctx context.Context, spans map[string]*span, later map[string]history.Change, upTo int64, answer *timeline.NetAnswer) error {
	limit := g.q.Limit
	if limit <= 0 {
		limit = MaxLimit
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(spans)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		s, first := g.subject(key), spans[key].first
		before, err := g.before(ctx, &s, &first)
		var after document
		if last, changed := later[key]; changed {
			var afterErr error
			after, afterErr = g.before(ctx, &s, &last)
			err = errors.Join(err, afterErr)
		} else {
			var afterErr error
			after, afterErr = g.present(ctx, &s)
			err = errors.Join(err, afterErr)
		}
		d := timeline.Difference{Effect: "changed", Group: s.Group, Resource: s.Resource, Namespace: s.Namespace, Name: s.Name,
			Hidden: slices.Sorted(maps.Keys(spans[key].touched))}
		doc := after
		if doc == nil {
			doc = before
		}
		item := timeline.Item{}
		describe(&item, &s, doc)
		d.Version, d.Kind = item.Version, item.Kind
		switch {
		case err != nil:
			d.Unknown = "the states at both times are not known"
		case before == nil && after == nil:
			continue
		case before == nil:
			d.Effect, d.Hidden = "created", nil
		case after == nil:
			d.Effect, d.Hidden = "removed", nil
		default:
			if changes, _ := timeline.Compare(before, after); len(changes) == 0 && len(d.Hidden) == 0 {
				continue
			}
		}
		if err == nil {
			d.Before, d.After = timeline.Quiet(before), timeline.Quiet(after)
		}
		raw, err := json.Marshal(&d)
		if err != nil {
			return err
		}
		if size += len(raw); size > maxAnswer || len(answer.Items) >= limit {
			answer.Truncated = true
			break
		}
		answer.Items = append(answer.Items, d)
	}
	return nil
}

// present returns the object as it is now; nil if it does not exist.
func (p *Past) present(ctx context.Context, s *subject) (document, error) {
	kv, _, err := p.Place.Store.Get(ctx, s.key, 0)
	if err != nil || kv == nil {
		return nil, err
	}
	return s.document(kv.Value, kv.ModRevision)
}
