package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// RunAll runs the starters until ctx ends or one of them fails, and returns when all have ended.
// env returns the environment of each, whose client carries its identity.
func RunAll(ctx context.Context, starters []Starter, env func(Starter) (Env, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		errs  []error
	)
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
		cancel()
	}
	for _, s := range starters {
		e, err := env(s)
		if err != nil {
			fail(fmt.Errorf("prepare controller %s: %w", s.Name, err))
			break
		}
		group.Go(func() {
			err := s.Run(ctx, e)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				err = errors.New("ended unexpectedly")
			}
			slog.Error("controller failed", "controller", s.Name, "error", err)
			fail(fmt.Errorf("controller %s: %w", s.Name, err))
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
