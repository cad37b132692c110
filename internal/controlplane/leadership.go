package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/lead"
	"github.com/knarr-project/knarr/internal/zpages"
)

// Controllers and scheduler run on one server of a cluster at a time: the leader (ADR 0070). There
// is one election for both. With one for each, a server that starts would write twice as much, and
// each server would renew two leases.

// leaderKey is the prefix of the election's keys.
func leaderKey(cfg *config.Config) string { return knarrKey(cfg, "leaders/control-plane") }

// leadership runs components while this server leads.
type leadership struct {
	mu      sync.Mutex
	term    *term         // nil while this server does not lead
	changed chan struct{} // closed when term changes
	names   []string      // the Leases of the components, in the order of their start
	ending  time.Time     // when the term ended whose components still run; zero if there is none
}

// term is a term of this server.
type term struct {
	*lead.Term
	ctx   context.Context // ends with the term
	parts sync.WaitGroup  // the components that run in the term
}

func newLeadership() *leadership { return &leadership{changed: make(chan struct{})} }

func (l *leadership) set(t *term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = t
	close(l.changed)
	l.changed = make(chan struct{})
}

// serve lets the components run until ctx ends, and waits for them.
func (l *leadership) serve(ctx context.Context, of *lead.Term) {
	t := &term{Term: of, ctx: ctx}
	l.set(t)
	<-ctx.Done()
	l.set(nil)
	l.setEnding(time.Now())
	t.parts.Wait()
	l.setEnding(time.Time{})
}

func (l *leadership) setEnding(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = at
}

// join waits for a term and takes part in it until leave is called. It returns nil if ctx ends
// first.
func (l *leadership) join(ctx context.Context) *term {
	for {
		l.mu.Lock()
		t, changed := l.term, l.changed
		if t != nil {
			t.parts.Add(1)
		}
		l.mu.Unlock()
		if t != nil {
			return t
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// during runs a component in each term until ctx ends, or until it fails within a term.
func (l *leadership) during(ctx context.Context, run func(ctx context.Context, t *term) error) error {
	for {
		t := l.join(ctx)
		if t == nil {
			return nil
		}
		// A child of the term's context: when a refused write ends the term, its caller sees an
		// ended context at once and does not retry.
		own, cancel := context.WithCancel(t.ctx)
		stop := context.AfterFunc(ctx, cancel)
		err := run(own, t)
		stop()
		cancel()
		t.parts.Done()
		if ctx.Err() != nil || t.ctx.Err() == nil {
			return err
		}
	}
}

// stuckAfter is the time after the end of a term for which its components may run, as upstream's
// leaders have before they count as unhealthy. Their writes are refused meanwhile.
const stuckAfter = 20 * time.Second

func (l *leadership) healthy(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := time.Since(l.ending); !l.ending.IsZero() && since > stuckAfter {
		return fmt.Errorf("the components of the leader still run %s after its leadership was lost", since.Round(time.Second))
	}
	return nil
}

// Describe implements prometheus.Collector.
func (l *leadership) Describe(ch chan<- *prometheus.Desc) { controller.DescribeLeading(ch) }

// Collect implements prometheus.Collector.
func (l *leadership) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.names {
		controller.CollectLeading(ch, name, l.term != nil)
	}
}

// StartLeadership takes part in the election of the leader, which runs the controllers and the
// scheduler.
func (s *Server) StartLeadership(ctx context.Context) (func() error, error) {
	self, err := s.holder()
	if err != nil {
		return nil, err
	}
	c := lead.Candidate{
		Store: s.raw, Key: leaderKey(s.cfg), Self: self, Alone: s.alone, Log: s.log.With("component", "leadership"),
	}
	for _, place := range s.places {
		c.Places = append(c.Places, place.Store)
	}
	return process.Background(func(ctx context.Context) error {
		return c.Run(ctx, func(ctx context.Context, t *lead.Term) error {
			// No earlier leader writes after the beginning of the term. So Views that have caught
			// up with it show all of its work, and the components do not repeat it.
			for {
				err := s.api.CatchUp(ctx)
				if err == nil {
					s.leadership.serve(ctx, t)
					return nil
				}
				if ctx.Err() != nil {
					return nil
				}
				c.Log.Warn("the leader cannot begin yet: its caches are behind the store", "err", err)
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	})(ctx)
}

// holder identifies this server in the election. A data folder has one process at a time.
func (s *Server) holder() (lead.Holder, error) {
	host, err := os.Hostname()
	if err != nil {
		return lead.Holder{}, err
	}
	dir, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		return lead.Holder{}, err
	}
	id := uuid.NewString()
	return lead.Holder{Name: s.cfg.NodeName + "_" + id, Home: host + ":" + dir, Process: id}, nil
}

// mirror shows the leadership in the Lease of an upstream component.
func (s *Server) mirror(t *term, name, user string) (controller.Mirror, *client.EventRecorder) {
	c := s.fenced(auth.Component(user), t.Fence)
	events := client.NewRecorder(c, name, "")
	return controller.Mirror{
		Client: c, Events: events, Namespace: "kube-system", Name: name, Identity: t.Name, Log: s.log.With("component", "leadership"),
	}, events
}

// releaseLimit bounds the last write of a leader that stops: the next leader waits for it.
const releaseLimit = time.Second

// led runs a component while this server leads, and shows it in the Lease that the upstream
// component of that name has. user is the name under which the upstream component acts.
func (s *Server) led(ctx context.Context, name, user string, run func(ctx context.Context, fence *store.Fence) error) error {
	s.leadership.mu.Lock()
	s.leadership.names = append(s.leadership.names, name)
	s.leadership.mu.Unlock()
	return s.leadership.during(ctx, func(ctx context.Context, t *term) error {
		mirror, events := s.mirror(t, name, user)
		err := process.Alongside(ctx,
			func(ctx context.Context) error {
				s.awaitPolicy(ctx)
				err := run(s.tracked(ctx), t.Fence)
				if err == nil && ctx.Err() == nil {
					err = errors.New("ended unexpectedly")
				}
				return err
			},
			process.Part(events.Run),
			process.Part(func(ctx context.Context) {
				if s.api.Started(ctx) == nil {
					mirror.Run(ctx)
				}
			}))
		if t.ctx.Err() == nil { // a planned stop
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
			defer cancel()
			if err := mirror.Release(ctx); err != nil {
				s.log.Debug("cannot give the leader's Lease back", "lease", name, "err", err)
			}
		}
		return err
	})
}

// leaderChecks are health checks of a server whose components may lead.
func (s *Server) leaderChecks() []zpages.Check {
	if s.Alone {
		return nil
	}
	return []zpages.Check{{Name: "leaderElection", Run: s.leadership.healthy}}
}
