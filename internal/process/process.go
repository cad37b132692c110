// Package process runs the components of a process. It starts them in order, stops them in reverse
// order, and stops all of them when one dies. The caller provides the list (ADR 0037).
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Component is one part of a process.
type Component struct {
	// Name is shown to users.
	Name string
	// Start returns when the component is usable. The component then runs until ctx ends; wait
	// returns when it has ended. A component that ends earlier is dead, whatever wait returns. wait
	// may be nil for a component without a goroutine.
	Start func(ctx context.Context) (wait func() error, err error)
}

// Phase is a set of components that start concurrently. The next phase starts when all of them are
// usable.
type Phase []Component

// Progress is called for each started component with the duration of its start.
type Progress func(component string, took time.Duration)

type running struct {
	name   string
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

// Run runs the phases until ctx ends or a component dies. Then it stops them in reverse order, the
// components of a phase concurrently. ready is called once, when everything is usable.
func Run(ctx context.Context, phases []Phase, progress Progress, ready func(), log *slog.Logger) error {
	p := &process{log: log, died: make(chan *running, 1)}
	err := p.start(ctx, phases, progress)
	if err == nil {
		if ready != nil {
			ready()
		}
		err = p.watch(ctx)
	}
	return errors.Join(err, p.stop())
}

type process struct {
	log    *slog.Logger
	phases [][]*running
	died   chan *running
}

func (p *process) start(ctx context.Context, phases []Phase, progress Progress) error {
	for _, phase := range phases {
		started := make([]*running, len(phase))
		errs := make([]error, len(phase))
		var wg sync.WaitGroup
		for i, c := range phase {
			wg.Add(1)
			go func() {
				defer wg.Done()
				began := time.Now()
				started[i], errs[i] = p.launch(ctx, c)
				if errs[i] == nil && progress != nil {
					progress(c.Name, time.Since(began))
				}
			}()
		}
		wg.Wait()
		p.phases = append(p.phases, slices.DeleteFunc(started, func(r *running) bool { return r == nil }))
		if err := errors.Join(errs...); err != nil {
			return err
		}
		select {
		case r := <-p.died:
			return dead(r)
		default:
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// launch starts one component with a context of its own. Only stop ends that context, so that
// dependent components end first.
func (p *process) launch(ctx context.Context, c Component) (*running, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopStart := context.AfterFunc(ctx, cancel) // abort an interrupted start at once
	wait, err := c.Start(own)
	if !stopStart() || err != nil {
		cancel()
		if err == nil && wait != nil {
			_ = wait()
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	r := &running{name: c.Name, cancel: cancel, ended: make(chan struct{})}
	if wait == nil {
		close(r.ended)
		return r, nil
	}
	go func() {
		r.err = wait()
		alive := own.Err() == nil
		close(r.ended)
		if alive {
			select {
			case p.died <- r:
			default:
			}
		}
	}()
	return r, nil
}

func (p *process) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case r := <-p.died:
		return dead(r)
	}
}

func dead(r *running) error {
	if r.err != nil {
		return fmt.Errorf("%s died: %w", r.name, r.err)
	}
	return fmt.Errorf("%s ended unexpectedly", r.name)
}

// stop stops the phases in reverse order.
func (p *process) stop() error {
	var errs []error
	for _, phase := range slices.Backward(p.phases) {
		for _, r := range phase {
			r.cancel()
		}
		for _, r := range phase {
			began := time.Now()
			<-r.ended
			if r.err != nil && !errors.Is(r.err, context.Canceled) {
				errs = append(errs, fmt.Errorf("stopping %s: %w", r.name, r.err))
			}
			p.log.Debug("stopped", "component", r.name, "took", time.Since(began))
		}
	}
	return errors.Join(errs...)
}

// Background adapts a run function without a start-up phase to Start.
func Background(run func(ctx context.Context) error) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		done := make(chan error, 1)
		go func() { done <- run(ctx) }()
		return func() error { return <-done }, nil
	}
}
