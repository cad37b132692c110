package snapshots

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Retention says which scheduled snapshots are kept.
type Retention struct {
	// Keep is the number of snapshots; 0 means all.
	Keep int
	// MaxAge is the age after which a snapshot is removed; 0 means never.
	MaxAge time.Duration
	// Server limits pruning to the snapshots of one server. If empty, all are pruned.
	Server string
}

// expired returns the scheduled snapshots that retention does not keep, oldest first. The newest
// good snapshot always stays, and so do snapshots with other names.
func (r Retention) expired(entries []Entry, now time.Time) []Entry {
	var scheduled []Entry
	for _, e := range entries {
		if strings.HasPrefix(e.Name, PrefixScheduled) && (r.Server == "" || serverOf(e.Name) == r.Server) {
			scheduled = append(scheduled, e)
		}
	}
	newest, hasGood := Newest(scheduled, time.Time{})
	good := 0
	for _, e := range scheduled {
		if e.Good() {
			good++
		}
	}
	var out []Entry
	for _, e := range scheduled {
		if !hasGood || e.Name == newest.Name {
			continue // without a good one, even a bad one may be the last way back
		}
		old := r.MaxAge > 0 && now.Sub(e.Time()) > r.MaxAge
		// A bad snapshot takes no place of a good one. A newer one than the newest good one may
		// still be written.
		surplus := !e.Good() && e.Time().Before(newest.Time())
		if e.Good() {
			surplus = r.Keep > 0 && good > r.Keep
		}
		if old || surplus {
			out = append(out, e)
			if e.Good() {
				good--
			}
		}
	}
	return out
}

// ScheduledName is the name, without its ending, of a server's scheduled snapshot.
func ScheduledName(server string, at time.Time) string {
	return PrefixScheduled + at.UTC().Format(TimeFormat) + "-" + server
}

// serverOf returns the server in a scheduled snapshot's name.
func serverOf(name string) string {
	rest := strings.TrimPrefix(name, PrefixScheduled)
	if len(rest) <= len(TimeFormat)+1 {
		return ""
	}
	rest = strings.TrimSuffix(rest[len(TimeFormat)+1:], sealedEnding)
	return strings.TrimSuffix(strings.TrimSuffix(rest, plainEnding), archiveEnding)
}

// Prune removes the scheduled snapshots that retention does not keep, and returns their names.
func Prune(ctx context.Context, place Place, r Retention, now time.Time) (removed []string, err error) {
	entries, err := place.List(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range r.expired(entries, now) {
		if err := place.Remove(ctx, e.Name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, e.Name)
	}
	return removed, errors.Join(append(errs, place.Tidy(ctx))...)
}

// keepBefores is the number of snapshots that are kept from before upgrades.
const keepBefores = 3

// PruneBefore removes all but the newest snapshots from before upgrades.
func PruneBefore(ctx context.Context, place Place) error {
	entries, err := place.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	kept := 0
	for _, e := range slices.Backward(entries) {
		if !strings.HasPrefix(e.Name, PrefixUpgrade) {
			continue
		}
		if kept++; kept > keepBefores {
			errs = append(errs, place.Remove(ctx, e.Name))
		}
	}
	return errors.Join(errs...)
}
