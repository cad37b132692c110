package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/store"
)

// Schedule returns the next time after a time, or the zero time for never.
type Schedule interface{ Next(time.Time) time.Time }

// Keeper takes snapshots on a schedule and removes old ones. On several servers each keeps its own
// folder, one after the other. Only one of them uploads to Shared at each time of the schedule.
type Keeper struct {
	Schedule Schedule
	// Store is the engine itself, with the keys and values as they are on disk.
	Store store.Store
	// Own is this server's folder, Shared the bucket of all servers; one of them may be nil.
	Own, Shared Place
	Retention   Retention
	// Work is the folder for unfinished files, on the file system of Own.
	Work string
	// Request has all that is the same for each snapshot. Keys returns the files of an archive.
	Request Request
	Keys    func() ([]KeyFile, error)
	Metrics *Metrics
	// Failed reports a failure to the cluster's users.
	Failed func(error)
	Clock  clock.Clock
	Log    *slog.Logger
}

const (
	// settle is the time after a start before a snapshot that was missed meanwhile is taken.
	settle = 5 * time.Minute
	// firstRetry is the time after a failure before the next attempt; it doubles each time.
	firstRetry = 5 * time.Minute
	// wait is the time before a server looks whether it is its turn.
	wait = 10 * time.Second
	// longestSleep bounds a timer, because the machine's clock may be set meanwhile.
	longestSleep = time.Hour
	// limit bounds one snapshot, with its upload.
	limit = 2 * time.Hour
)

// Run takes snapshots until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	last, failures := k.lastTime(ctx), 0
	earliest := k.Clock.Now().Add(settle)
	for {
		due := k.Schedule.Next(last)
		if due.IsZero() {
			<-ctx.Done()
			return nil
		}
		if earliest.After(due) {
			due = earliest
		}
		if !k.sleepUntil(ctx, due) {
			return nil
		}
		now := k.Clock.Now()
		err := k.takeOne(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errTaken):
			earliest = k.Clock.Now().Add(wait)
		case err != nil:
			failures++
			earliest = k.Clock.Now().Add(firstRetry << min(failures-1, 6))
			k.Metrics.taken.WithLabelValues("failed").Inc()
			k.Log.Error("a scheduled snapshot failed", "error", err, "next", earliest.Format(time.RFC3339))
			k.Failed(err)
		default:
			last, failures, earliest = now, 0, time.Time{}
		}
	}
}

// lastTime returns when this server's newest snapshot was taken. A server without one begins now.
func (k *Keeper) lastTime(ctx context.Context) time.Time {
	place := k.Own
	if place == nil {
		place = k.Shared
	}
	entries, err := place.List(ctx)
	if err != nil {
		k.Log.Warn("cannot list earlier snapshots", "place", place.String(), "error", err)
	}
	last := time.Time{}
	for _, e := range entries {
		if e.Good() && (k.Own == nil || serverOf(e.Name) == k.Request.Server) && e.Time().After(last) {
			last = e.Time()
		}
	}
	if last.IsZero() || last.After(k.Clock.Now()) {
		return k.Clock.Now()
	}
	return last
}

// sleepUntil returns false if ctx has ended.
func (k *Keeper) sleepUntil(ctx context.Context, due time.Time) bool {
	for {
		left := due.Sub(k.Clock.Now())
		if left <= 0 {
			return ctx.Err() == nil
		}
		timer := k.Clock.NewTimer(min(left, longestSleep))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C():
		}
	}
}

// takeOne takes a snapshot that is due, and prunes.
func (k *Keeper) takeOne(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return turn(ctx, k.Store, k.Request.Server, k.Log, func(ctx context.Context) error {
		upload := false
		if k.Shared != nil {
			newest, err := sharedTime(ctx, k.Store)
			if err != nil {
				return err
			}
			upload = newest.IsZero() || !k.Schedule.Next(newest).After(k.Clock.Now())
		}
		if k.Own == nil && !upload {
			return nil // another server has taken this one
		}
		return k.takeNow(ctx, upload)
	})
}

func (k *Keeper) takeNow(ctx context.Context, upload bool) (err error) {
	began := k.Clock.Now()
	work, err := NewWork(k.Work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	req := k.Request
	req.Name = ScheduledName(req.Server, began)
	if req.WithKeys {
		if req.Keys, err = k.Keys(); err != nil {
			return fmt.Errorf("read the cluster's keys: %w", err)
		}
	}
	taken, err := Take(ctx, work, req)
	if err != nil {
		return err
	}
	pruned := 0
	keep := func(place Place, server string) error {
		if err := place.Put(ctx, taken); err != nil {
			return err
		}
		own := k.Retention
		own.Server = server
		removed, err := Prune(ctx, place, own, k.Clock.Now())
		pruned += len(removed)
		if len(removed) > 0 {
			k.Log.Info("removed old snapshots", "place", place.String(), "names", removed)
		}
		return err
	}
	if k.Own != nil {
		if err := keep(k.Own, req.Server); err != nil {
			return err
		}
	}
	if upload {
		if err := keep(k.Shared, ""); err != nil {
			return err
		}
		if err := noteShared(ctx, k.Store, &taken.Record); err != nil {
			return err
		}
	}
	k.Metrics.taken.WithLabelValues("success").Inc()
	k.Metrics.last.Set(float64(taken.Record.Taken.Unix()))
	k.Metrics.size.Set(float64(taken.Record.Size))
	k.Metrics.keys.Set(float64(taken.Record.Keys))
	k.Metrics.took.Set(k.Clock.Since(began).Seconds())
	k.Metrics.pruned.Set(float64(pruned))
	k.Log.Info("took a snapshot", "name", taken.Record.Name, "revision", taken.Record.Revision, "keys", taken.Record.Keys, "bytes", taken.Record.Size, "uploaded", upload)
	return nil
}
