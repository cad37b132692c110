package run

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// alongside runs parts until ctx ends or one of them fails, and returns when all have ended.
func alongside(ctx context.Context, parts ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// background makes a part of what only ends with its context.
func background(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error { run(ctx); return nil }
}
