package probe

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind is one of the three probes.
type Kind string

const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// tries is the number of attempts for a probe that could not be carried out. A probe that failed is
// not repeated.
const tries = 3

// Set holds the probes of one pod's running containers. It is safe for concurrent use.
type Set struct {
	Prober *Prober
	// Changed is called when a verdict changes.
	Changed func()
	// Unhealthy is called for each probe that failed or could not be carried out.
	Unhealthy func(t Target, kind Kind, r Result, output string)
	// Count counts and times results for metrics; may be nil.
	Count func(t Target, kind Kind, r Result, took time.Duration)

	mu         sync.Mutex
	containers map[string]*probed
	wg         sync.WaitGroup
}

type probed struct {
	cancel    context.CancelFunc
	stopAlive context.CancelFunc // stops the startup and liveness probes
	started   bool
	startedCh chan struct{}
	ready     bool
	failed    Kind
}

// Seed is the state of the container as known to an earlier run of the node agent.
type Seed struct{ Started, Ready bool }

// Ensure starts the probes of a running container. It does nothing if the container is known.
func (s *Set) Ensure(ctx context.Context, t Target, since time.Time, seed Seed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containers == nil {
		s.containers = map[string]*probed{}
	}
	if s.containers[t.ID] != nil {
		return
	}
	c := t.Container
	ctx, cancel := context.WithCancel(ctx)
	alive, stopAlive := context.WithCancel(ctx)
	p := &probed{cancel: cancel, stopAlive: stopAlive, startedCh: make(chan struct{}), ready: c.ReadinessProbe == nil || seed.Ready}
	s.containers[t.ID] = p
	if c.StartupProbe == nil || seed.Started {
		p.started = true
		close(p.startedCh)
	} else {
		s.run(alive, t, p, Startup, c.StartupProbe, since)
	}
	if c.LivenessProbe != nil {
		s.run(alive, t, p, Liveness, c.LivenessProbe, since)
	}
	if c.ReadinessProbe != nil {
		s.run(ctx, t, p, Readiness, c.ReadinessProbe, since)
	}
}

// Known reports whether the container's probes run or have run.
func (s *Set) Known(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[id] != nil
}

// Stop stops the probes of a container.
func (s *Set) Stop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.containers[id]; p != nil {
		p.cancel()
		p.ready = false
	}
}

// StopAliveness stops startup and liveness probes of all containers, because an ending pod's
// containers are not restarted. Readiness probes go on.
func (s *Set) StopAliveness() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.containers {
		p.stopAlive()
	}
}

// Close stops all probes and waits for them.
func (s *Set) Close() {
	s.mu.Lock()
	for _, p := range s.containers {
		p.cancel()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Started reports whether the container has passed its startup probe or has none.
func (s *Set) Started(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.containers[id]
	return p != nil && p.started
}

// Ready reports whether the container can serve.
func (s *Set) Ready(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.containers[id]
	return p != nil && p.ready
}

// Failed returns the kind of the probe whose failure requires a restart, or "".
func (s *Set) Failed(id string) Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.containers[id]; p != nil {
		return p.failed
	}
	return ""
}

func (s *Set) run(ctx context.Context, t Target, p *probed, kind Kind, h *corev1.Probe, since time.Time) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		if kind != Startup {
			select {
			case <-ctx.Done():
				return
			case <-p.startedCh:
			}
		}
		timer := time.NewTimer(time.Until(since.Add(time.Duration(h.InitialDelaySeconds) * time.Second)))
		defer timer.Stop()
		period := time.Duration(max(h.PeriodSeconds, 1)) * time.Second
		row, last := int32(0), Result("")
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			began := time.Now()
			next := began.Add(period)
			r, out := s.probe(ctx, t, h)
			if ctx.Err() != nil {
				return
			}
			if s.Count != nil {
				s.Count(t, kind, r, time.Since(began))
			}
			if r != Success {
				s.Unhealthy(t, kind, r, out)
			}
			if r != Unknown {
				if r == Warning {
					r = Success
				}
				if r != last {
					row, last = 0, r
				}
				row++
				if s.judge(p, kind, h, r, row) {
					return
				}
			}
			timer.Reset(time.Until(next))
		}
	}()
}

func (s *Set) probe(ctx context.Context, t Target, h *corev1.Probe) (r Result, out string) {
	for range tries {
		if r, out = s.Prober.Probe(ctx, t, h); r != Unknown || ctx.Err() != nil {
			return r, out
		}
	}
	return r, out
}

// judge turns row equal results in succession into a verdict. It returns true when the probe is
// finished.
func (s *Set) judge(p *probed, kind Kind, h *corev1.Probe, r Result, row int32) (done bool) {
	if r == Success && row < max(h.SuccessThreshold, 1) || r == Failure && row < max(h.FailureThreshold, 1) {
		return false
	}
	s.mu.Lock()
	changed := false
	switch kind {
	case Startup:
		done = true
		if r == Success {
			p.started, changed = true, true
			close(p.startedCh)
		} else {
			p.failed, changed = kind, true
		}
	case Liveness:
		if r == Failure {
			p.failed, changed, done = kind, true, true
		}
	case Readiness:
		changed = p.ready != (r == Success)
		p.ready = r == Success
	}
	s.mu.Unlock()
	if changed {
		s.Changed()
	}
	return done
}
