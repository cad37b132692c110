package controller

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/knarr-project/knarr/internal/insight/because"
)

// reconcileOnce runs a queue until it has reconciled the given number of times, and returns the
// causes that Reconcile saw.
func reconcileOnce(t *testing.T, ctx context.Context, times int, add func(*Work[Key])) (seen [][]int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	work := NewWork("test", func(ctx context.Context, _ Key) (Result, error) {
		causes := because.From(ctx)
		seen = append(seen, slices.Clone(causes.All()))
		if len(seen) == times {
			cancel()
			return Result{}, nil
		}
		return Result{}, errors.New("again")
	})
	work.causes.track(ctx)
	add(work)
	work.Run(ctx, 1)
	if len(work.causes.of) != 0 {
		t.Errorf("remembered: %v", work.causes.of)
	}
	return seen
}

func TestReconcileKnowsTheChangesThatQueuedItsKey(t *testing.T) {
	add := func(w *Work[Key]) {
		for _, revision := range []int64{5, 6, 5, 0} {
			w.AddBecause(Key{Name: "a"}, revision)
		}
		w.Add(Key{Name: "a"})
	}
	// The second attempt has the causes of the first one.
	got := reconcileOnce(t, because.Track(t.Context()), 2, add)
	if want := []int64{5, 6}; !slices.Equal(got[0], want) || !slices.Equal(got[1], want) {
		t.Errorf("got %v", got)
	}
	if got = reconcileOnce(t, t.Context(), 1, add); len(got[0]) != 0 {
		t.Errorf("without tracking: %v", got)
	}
}

func TestTheCausesOfOneQueueAreBounded(t *testing.T) {
	var c waitingCauses[int]
	c.track(because.Track(t.Context()))
	for key := range maxCausedKeys + 10 {
		c.add(key, because.Of(int64(key+1)))
	}
	if len(c.of) != maxCausedKeys {
		t.Errorf("%d keys", len(c.of))
	}
}
