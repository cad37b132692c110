package flow

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Config limits the load of a server.
type Config struct {
	// Seats are all seats: upstream's --max-requests-inflight and --max-mutating-requests-inflight
	// together, 400 + 200 by default.
	Seats int
	// MaxWait is the longest time that a request waits; 0 is 15 s.
	MaxWait time.Duration
	Logger  *slog.Logger
	Now     func() time.Time
}

// Gate gives seats to requests. Until Configure is called, all requests pass. Safe for concurrent
// use.
type Gate struct {
	cfg   Config
	table atomic.Pointer[table]
	waits waitMetrics
	// queued counts the waiting requests, readOnly and mutating.
	queued [2]atomic.Int64

	mu     sync.Mutex // serializes Configure, and guards levels
	levels map[string]*level
}

// The kinds of requests in metrics.
const (
	readOnly = iota
	mutating
)

func requestKind(r *Request) int {
	switch r.Verb {
	case "get", "list", "watch":
		return readOnly
	}
	return mutating
}

// New creates a Gate.
func New(cfg Config) *Gate {
	if cfg.Seats == 0 {
		cfg.Seats = 600
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = 15 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Gate{cfg: cfg, levels: map[string]*level{}, waits: newWaitMetrics()}
}

// Ticket is a request's seats. The zero Ticket has none.
type Ticket struct {
	gate   *Gate
	schema *schema
	level  *level
	seats  seats
	start  time.Time
	watch  bool
	// Waited is how long the request stood in a queue.
	Waited time.Duration
	// RetryAfter is the number of seconds after which a refused client may retry.
	RetryAfter int
}

// SchemaUID returns the UID of the request's schema, for the response's headers; "" if there is
// none.
func (t *Ticket) SchemaUID() types.UID {
	if t.schema == nil {
		return ""
	}
	return t.schema.uid
}

// LevelUID returns the UID of the priority level.
func (t *Ticket) LevelUID() types.UID {
	if t.schema == nil {
		return ""
	}
	return t.schema.levelUID
}

// Done releases the seats. Only the first call counts.
func (t *Ticket) Done() {
	if t.gate == nil {
		return
	}
	took := t.gate.cfg.Now().Sub(t.start)
	t.level.exit(t.seats, took)
	t.schema.ended(t, took)
	t.gate = nil
}

// ErrTooMany refuses a request; the client may retry later.
//
//nolint:staticcheck // upstream's words
var ErrTooMany = errors.New("Too many requests, please try again later.")

// refuse counts a refusal.
func (g *Gate) refuse(t Ticket, reason string) (Ticket, error) {
	t.schema.refused(reason)
	t.RetryAfter = t.level.retryAfter.refuse(g.cfg.Now())
	return t, ErrTooMany
}

// Enter waits until there are width seats for the request. The ticket has the request's schema even
// if the request is refused.
func (g *Gate) Enter(ctx context.Context, r *Request, width func(most int) int) (Ticket, error) {
	t := g.table.Load()
	if t == nil {
		return Ticket{}, nil
	}
	s := t.find(r)
	if s == nil {
		return Ticket{}, nil
	}
	l, now := s.level, g.cfg.Now()
	ticket := Ticket{schema: s, level: l, start: now}
	wide := 1
	if !s.shape.exempt {
		wide = width(max(1, s.shape.nominal))
	}
	outcome, got, w, reason := l.enter(wide, s.flowOf(r), now, func() (Request, string, string) { return *r, s.name, s.distinguisher(r) })
	switch outcome {
	case Served:
		g.waits.waited(s, true, 0, 1)
	case Refused:
		return g.refuse(ticket, reason)
	case Waiting:
		s.inProgress.waiting.Add(1)
		s.inProgress.wanted.Add(int64(wide))
		g.queued[requestKind(r)].Add(1)
		reason := g.wait(ctx, l, w)
		s.inProgress.waiting.Add(-1)
		s.inProgress.wanted.Add(-int64(wide))
		g.queued[requestKind(r)].Add(-1)
		ticket.Waited = g.cfg.Now().Sub(now)
		g.waits.waited(s, reason == "", ticket.Waited, w.queueLength)
		if reason != "" {
			return g.refuse(ticket, reason)
		}
		got = w.seats()
		ticket.start = g.cfg.Now()
	}
	ticket.gate, ticket.seats, ticket.watch = g, got, r.Verb == "watch"
	s.began(&ticket)
	return ticket, nil
}

// wait returns "" when the request has its seats, else the reason of the refusal.
func (g *Gate) wait(ctx context.Context, l *level, w *waiter) string {
	timer := time.NewTimer(g.cfg.MaxWait)
	defer timer.Stop()
	reason := reasonTimeout
	select {
	case <-w.served:
		return ""
	case <-timer.C:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			reason = reasonCancelled
		}
	}
	if l.withdraw(w, reason) {
		return reason
	}
	return ""
}

// Configure applies the current objects. Levels keep their requests; a deleted level lives until it
// is empty.
func (g *Gate) Configure(schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := &table{levels: map[string]*level{}}
	shape := shapes(levels, g.cfg.Seats)
	for _, o := range levels {
		l := g.levels[o.Name]
		if l == nil {
			l = &level{name: o.Name, utilization: newUtilization(g.cfg.Now)}
			g.levels[o.Name] = l
		}
		l.configure(o.UID, shape[o.Name])
		next.levels[o.Name] = l
	}
	for name := range g.levels {
		if next.levels[name] == nil {
			delete(g.levels, name) // requests in progress refer to it
		}
	}
	before := map[types.UID]*schema{}
	if t := g.table.Load(); t != nil {
		for _, s := range t.schemas {
			before[s.uid] = s
		}
	}
	sorted := slices.Clone(schemas)
	sortSchemas(sorted)
	for _, o := range sorted {
		l := next.levels[o.Spec.PriorityLevelConfiguration.Name]
		if l == nil {
			continue // dangling: ignored
		}
		s := &schema{name: o.Name, uid: o.UID, spec: o.Spec, level: l, levelUID: l.uid, shape: shape[l.name], inProgress: &inProgress{}}
		g.waits.of(s)
		if old := before[o.UID]; old != nil {
			s.served.Store(old.served.Load())
			s.inProgress = old.inProgress
			for i := range s.refusedBy {
				s.refusedBy[i].Store(old.refusedBy[i].Load())
			}
		}
		next.schemas = append(next.schemas, s)
	}
	g.table.Store(next)
}

// adjustEvery is the interval at which seats are lent and returned (KEP-1040).
const adjustEvery = 10 * time.Second

// Run adjusts the levels' seats to their demand until ctx ends.
func (g *Gate) Run(ctx context.Context) {
	ticker := time.NewTicker(adjustEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.adjust()
		}
	}
}

func (g *Gate) adjust() {
	t := g.table.Load()
	if t == nil {
		return
	}
	levels := make([]*level, 0, len(t.levels))
	want := make([]levelDemand, 0, len(t.levels))
	for _, l := range t.levels {
		highest, smoothed := l.demand()
		l.mu.Lock()
		shape := l.shape
		l.mu.Unlock()
		levels, want = append(levels, l), append(want, levelDemand{shape, highest, smoothed})
	}
	for i, limit := range divide(want, g.cfg.Seats) {
		levels[i].setLimit(limit)
	}
}
