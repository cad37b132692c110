package encryption

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/knarr-project/knarr/internal/reload"
)

// followInterval is the interval of checks of the file and the plugins. repairInterval is the
// interval of attempts to read what a plugin could not decrypt.
const (
	followInterval = reload.Every
	repairInterval = time.Second
)

// retireAfter is how long the connections of a replaced configuration stay open, for requests in
// progress.
const retireAfter = time.Minute

// retired is a plugin that the configuration no longer names.
type retired struct {
	plugin *plugin
	since  time.Time
}

// follow checks the file and the plugins until the store is closed.
func (s *Store) follow(ctx context.Context, changes bool) {
	looked := time.Now()
	for {
		pause := followInterval
		if s.isBroken() {
			pause = repairInterval
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.wake:
			timer.Stop()
		case <-timer.C:
			s.retryBroken(ctx)
		}
		if now := time.Now(); now.Sub(looked) >= followInterval {
			looked = now
			s.step(ctx, changes, now)
		}
	}
}

// step loads a changed file, checks the plugins that are due, and closes unused ones.
func (s *Store) step(ctx context.Context, changes bool, now time.Time) {
	if changes {
		s.file.Check(ctx, now)
	}
	for _, p := range s.rules.Load().kms {
		if !p.due(now) {
			continue
		}
		if err := p.refresh(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("a key management service does not answer", "kms", p.config.Name, "err", err)
		}
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	kept := s.retired[:0]
	for _, r := range s.retired {
		if now.Sub(r.since) < retireAfter {
			kept = append(kept, r)
			continue
		}
		r.plugin.close()
	}
	clear(s.retired[len(kept):])
	s.retired = kept
}

// replace loads a changed configuration, if all its plugins answer.
func (s *Store) replace(ctx context.Context, data []byte) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	before := s.rules.Load()
	next, err := load(ctx, data, before)
	if err != nil {
		return err
	}
	for _, p := range next.kms {
		if before.plugin(&p.config) != nil {
			continue
		}
		if err := p.refresh(ctx); err != nil {
			next.closeUnused(before)
			return fmt.Errorf("key management service %s: %w", p.config.Name, err)
		}
	}
	s.rules.Store(next)
	for _, p := range before.kms {
		if next.plugin(&p.config) == nil {
			s.retired = append(s.retired, retired{p, time.Now()})
		}
	}
	return nil
}

// Health reports the plugins that do not work.
func (s *Store) Health(ctx context.Context) error {
	var errs []error
	for i, p := range s.rules.Load().kms {
		if err := p.health(ctx); err != nil {
			errs = append(errs, fmt.Errorf("kms-provider-%d: %w", i, err))
		}
	}
	return utilerrors.NewAggregate(errs)
}

// Collectors returns the store's metrics.
func (s *Store) Collectors() []prometheus.Collector {
	return append(s.file.Collectors(), newLibraryMetrics())
}
