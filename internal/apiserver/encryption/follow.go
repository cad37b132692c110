package encryption

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/knarr-project/knarr/internal/reload"
)

// followEvery is how often the file and the plugins are looked at; repairEvery how often it is tried to read what a plugin could not decrypt.
const (
	followEvery = reload.Every
	repairEvery = time.Second
)

// retireAfter is how long the connections of a configuration that was replaced stay: requests that have begun end with them.
const retireAfter = time.Minute

// retired is a plugin that the configuration does not name any more.
type retired struct {
	plugin *plugin
	since  time.Time
}

// follow looks at the file and the plugins until the store is closed.
func (s *Store) follow(ctx context.Context, changes bool) {
	looked := time.Now()
	for {
		pause := followEvery
		if s.isBroken() {
			pause = repairEvery
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.wake:
			timer.Stop()
		case <-timer.C:
			s.mend(ctx)
		}
		if now := time.Now(); now.Sub(looked) >= followEvery {
			looked = now
			s.step(ctx, changes, now)
		}
	}
}

// step takes a changed file, asks the plugins that are due, and ends those that are not used any more.
func (s *Store) step(ctx context.Context, changes bool, now time.Time) {
	if changes {
		s.file.Look(ctx, now)
	}
	for _, p := range s.rules.Load().kms {
		if !p.due(now) {
			continue
		}
		if err := p.refresh(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("a key management service does not answer", "kms", p.config.Name, "err", err)
		}
	}
	kept := s.retired[:0]
	for _, r := range s.retired {
		if now.Sub(r.since) < retireAfter {
			kept = append(kept, r)
			continue
		}
		r.plugin.end()
	}
	clear(s.retired[len(kept):])
	s.retired = kept
}

// replace takes a changed configuration, if all its plugins answer.
func (s *Store) replace(ctx context.Context, data []byte) error {
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
			next.endAllBut(before)
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

// Health says which plugins do not work.
func (s *Store) Health(ctx context.Context) error {
	var errs []error
	for i, p := range s.rules.Load().kms {
		if err := p.health(ctx); err != nil {
			errs = append(errs, fmt.Errorf("kms-provider-%d: %w", i, err))
		}
	}
	return utilerrors.NewAggregate(errs)
}

// Collectors are the store's metrics.
func (s *Store) Collectors() []prometheus.Collector {
	return append(s.file.Collectors(), newCounted())
}
