package process

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// Alongside runs parts until ctx ends or one of them fails. It returns when all have ended.
func Alongside(ctx context.Context, parts ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Part adapts a function that only ends with its context.
func Part(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error { run(ctx); return nil }
}
