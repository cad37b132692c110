package history

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/insight/segments"
)

// Query selects changes. Zero values do not restrict.
type Query struct {
	After, UpTo  int64     // revisions: greater than After, at most UpTo
	Since, Until time.Time // times, both included
	// Kind and Namespace are names from Rules.Describe. A block is skipped if it has none of them,
	// but Each calls its function with all other changes of a block.
	Kind, Namespace string
	Key             string
	NewestFirst     bool
	// Gaps is called with each gap in the range, and with damaged parts of the log.
	Gaps func(Gap)
}

// marks are what a block must have.
func (q *Query) marks() []uint32 {
	var list []uint32
	if q.Kind != "" {
		list = append(list, kindMark(q.Kind))
	}
	if q.Namespace != "" {
		list = append(list, namespaceMark(q.Namespace))
	}
	if q.Key != "" {
		list = append(list, keyMark(q.Key))
	}
	return list
}

// wants reports whether the block may have changes or gaps for the query.
func (q *Query) wants(h *header, marks []uint32) bool {
	if h.rawSize == 0 || h.position <= q.After || q.UpTo > 0 && h.first > q.UpTo {
		return false
	}
	if !q.Since.IsZero() && h.lastTime < micros(q.Since) || !q.Until.IsZero() && h.firstTime > micros(q.Until) {
		return false
	}
	if h.has(gapMark) {
		return true
	}
	for _, mark := range marks {
		if !h.has(mark) {
			return false
		}
	}
	return true
}

// selects reports whether the query wants the change.
func (q *Query) selects(c *Change) bool {
	return c.Revision > q.After && (q.UpTo == 0 || c.Revision <= q.UpTo) && (q.Key == "" || c.Key == q.Key) &&
		(q.Since.IsZero() || !c.Time.Before(q.Since)) && (q.Until.IsZero() || !c.Time.After(q.Until))
}

func (q *Query) gap(g Gap) {
	if q.Gaps != nil && g.ToRevision > q.After && (q.UpTo == 0 || g.FromRevision < q.UpTo) &&
		(q.Since.IsZero() || !g.To.Before(q.Since)) && (q.Until.IsZero() || !g.From.After(q.Until)) {
		q.Gaps(g)
	}
}

// view is the log at one moment.
type view struct {
	segments []segments.Segment
	pending  header // with rawSize 0 if there is none
	raw      []byte
	position int64
	lastTime time.Time
}

// view returns the log with all that was appended before the call.
func (l *Log) view(ctx context.Context) (*view, error) {
	if err := l.flush(ctx); err != nil {
		return nil, err
	}
	l.blockMu.Lock()
	defer l.blockMu.Unlock()
	v := &view{position: l.position, lastTime: l.lastTime, raw: bytes.Clone(l.block.raw), segments: l.files.View()}
	if len(v.raw) > 0 {
		v.pending = l.block.head
		v.pending.rawSize, v.pending.position = uint32(len(v.raw)), l.position
		v.pending.marks = slices.Sorted(maps.Keys(l.block.marks))
	}
	return v, nil
}

// Each calls fn with the changes that the query selects, until fn returns false. Their bytes stay
// valid, and keep a block in memory.
func (l *Log) Each(ctx context.Context, q Query, fn func(Change) bool) error {
	v, err := l.view(ctx)
	if err != nil {
		return err
	}
	marks, goesOn := q.marks(), true
	pending := func() error {
		if goesOn && q.wants(&v.pending, marks) {
			var err error
			goesOn, err = q.visit(v.raw, fn)
			return err
		}
		return nil
	}
	if q.NewestFirst {
		if err := pending(); err != nil {
			return err
		}
		slices.Reverse(v.segments)
	}
	for i := range v.segments {
		if err := ctx.Err(); err != nil || !goesOn {
			return err
		}
		s := &v.segments[i]
		if !q.reaches(v, i) {
			continue
		}
		var err error
		if goesOn, err = q.segment(ctx, s, marks, fn); err != nil {
			return err
		}
	}
	if q.NewestFirst {
		return nil
	}
	return pending()
}

// reaches reports whether segment i of the view may have changes for the query, so that its headers
// need to be read.
func (q *Query) reaches(v *view, i int) bool {
	if position, _ := parseHead(v.segments[i].Head); q.UpTo > 0 && position >= q.UpTo {
		return false
	}
	next := i + 1
	if q.NewestFirst {
		next = i - 1
	}
	if next < 0 || next >= len(v.segments) {
		return true
	}
	position, _ := parseHead(v.segments[next].Head)
	return position > q.After
}

// segment calls fn with the selected changes of a segment.
func (q *Query) segment(ctx context.Context, s *segments.Segment, marks []uint32, fn func(Change) bool) (goesOn bool, err error) {
	f, err := s.Open()
	if segments.Gone(err) {
		return true, nil // pruned meanwhile
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	var wanted []placed
	var last Gap
	last.FromRevision, last.From = parseHead(s.Head)
	err = blocks(s, f, func(p placed) bool {
		last = Gap{FromRevision: p.position, From: time.UnixMicro(p.lastTime).UTC()}
		if q.wants(p.header, marks) {
			wanted = append(wanted, p)
		}
		return true
	})
	if errors.Is(err, segments.ErrMalformed) { // its end is damaged
		last.To, last.ToRevision = last.From, last.FromRevision+1
		q.gap(last)
	} else if err != nil {
		return false, err
	}
	if q.NewestFirst {
		slices.Reverse(wanted)
	}
	for _, p := range wanted {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		raw, err := p.read(f, p.at)
		if err == nil {
			goesOn, err = q.visit(raw, fn)
		}
		if errors.Is(err, segments.ErrMalformed) {
			q.gap(Gap{From: time.UnixMicro(p.firstTime).UTC(), To: time.UnixMicro(p.lastTime).UTC(), FromRevision: p.first - 1, ToRevision: p.position})
			continue
		}
		if err != nil || !goesOn {
			return false, err
		}
	}
	return true, nil
}

// visit calls fn with the selected changes of a block.
func (q *Query) visit(raw []byte, fn func(Change) bool) (goesOn bool, err error) {
	goesOn = true
	if !q.NewestFirst {
		err = decode(raw, func(c Change) {
			if goesOn && q.selects(&c) {
				goesOn = fn(c)
			}
		}, q.gap)
		return goesOn, err
	}
	var found []Change
	err = decode(raw, func(c Change) {
		if q.selects(&c) {
			found = append(found, c)
		}
	}, q.gap)
	for i := len(found) - 1; i >= 0 && goesOn; i-- {
		goesOn = fn(found[i])
	}
	return goesOn, err
}

// Reach returns the oldest time from which on the log has changes. It is zero before Start.
func (l *Log) Reach() time.Time {
	view := l.files.View()
	if len(view) == 0 {
		return time.Time{}
	}
	_, began := parseHead(view[0].Head)
	return began
}

// RevisionAt returns the revision of the last change up to a time. known is false for a time before
// the log's reach.
func (l *Log) RevisionAt(ctx context.Context, at time.Time) (revision int64, known bool, err error) {
	v, err := l.view(ctx)
	if err != nil {
		return 0, false, err
	}
	if !at.Before(v.lastTime) {
		return v.position, len(v.segments) > 0, nil
	}
	if len(v.segments) == 0 {
		return 0, false, nil
	}
	revision, reach := parseHead(v.segments[0].Head)
	if at.Before(reach) {
		return 0, false, nil
	}
	// The changes of the last minutes are a question's usual subject, so search from the end.
	q := Query{Until: at, NewestFirst: true}
	if v.pending.rawSize > 0 && v.pending.firstTime <= micros(at) {
		found := false
		_, err := q.visit(v.raw, func(c Change) bool { revision, found = c.Revision, true; return false })
		if err != nil || found {
			return revision, true, err
		}
	}
	for i := len(v.segments) - 1; i >= 0; i-- {
		s := &v.segments[i]
		if _, began := parseHead(s.Head); began.After(at) {
			continue
		}
		found, err := revisionAt(s, at)
		if segments.Gone(err) {
			break
		}
		return found, true, err
	}
	return revision, true, ctx.Err()
}

// revisionAt is RevisionAt for the segment that has the time.
func revisionAt(s *segments.Segment, at time.Time) (revision int64, err error) {
	f, err := s.Open()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	revision, _ = parseHead(s.Head)
	var within *placed
	err = blocks(s, f, func(p placed) bool {
		if p.firstTime > micros(at) {
			return false
		}
		if p.lastTime <= micros(at) {
			revision = p.position
			return true
		}
		within = &p
		return false
	})
	if err != nil && !errors.Is(err, segments.ErrMalformed) {
		return 0, err
	}
	if within != nil {
		raw, err := within.read(f, within.at)
		if err != nil {
			return revision, err
		}
		q := Query{Until: at}
		if _, err := q.visit(raw, func(c Change) bool { revision = c.Revision; return true }); err != nil {
			return revision, err
		}
	}
	return revision, nil
}
