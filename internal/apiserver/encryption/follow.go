package encryption

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// followEvery is how often the file and the plugins are looked at; repairEvery how often it is tried to read what a plugin could not decrypt.
const (
	followEvery = 10 * time.Second
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
func (s *Store) follow(reload bool) {
	looked := time.Now()
	for {
		pause := followEvery
		if s.isBroken() {
			pause = repairEvery
		}
		timer := time.NewTimer(pause)
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return
		case <-s.wake:
			timer.Stop()
		case <-timer.C:
			s.mend(s.ctx)
		}
		if now := time.Now(); now.Sub(looked) >= followEvery {
			looked = now
			s.step(reload, now)
		}
	}
}

// step takes a changed file, asks the plugins that are due, and ends those that are not used any more.
func (s *Store) step(reload bool, now time.Time) {
	if reload {
		s.reload(now)
	}
	for _, p := range s.rules.Load().kms {
		if !p.due(now) {
			continue
		}
		if err := p.refresh(s.ctx); err != nil && s.ctx.Err() == nil {
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

// reload takes the file if its content is another one. One that can not be used changes nothing, and is tried again: what it lacks (a
// plugin that starts late) may come.
func (s *Store) reload(now time.Time) {
	data, err := os.ReadFile(s.path)
	sum := sha256.Sum256(data)
	if err == nil && sum == s.loaded {
		s.refused = ""
		return
	}
	if err == nil {
		err = s.replace(data, now)
	}
	s.metrics.reloaded(err, now)
	if err != nil {
		if text := err.Error(); text != s.refused && s.ctx.Err() == nil {
			s.refused = text
			s.log.Error("the changed encryption configuration is not used", "file", s.path, "err", err)
		}
		return
	}
	s.loaded, s.refused = sum, ""
	s.metrics.loaded(sum)
	s.log.Info("encryption configuration reloaded", "file", s.path)
}

func (s *Store) replace(data []byte, now time.Time) error {
	before := s.rules.Load()
	next, err := load(s.ctx, data, before)
	if err != nil {
		return err
	}
	for _, p := range next.kms {
		if before.plugin(&p.config) != nil {
			continue
		}
		if err := p.refresh(s.ctx); err != nil {
			next.endAllBut(before)
			return fmt.Errorf("key management service %s: %w", p.config.Name, err)
		}
	}
	s.rules.Store(next)
	for _, p := range before.kms {
		if next.plugin(&p.config) == nil {
			s.retired = append(s.retired, retired{p, now})
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

// reloadMetrics have upstream's names.
type reloadMetrics struct {
	count *prometheus.CounterVec
	last  *prometheus.GaugeVec
	info  *prometheus.GaugeVec
}

func newReloadMetrics() reloadMetrics {
	const prefix = "apiserver_encryption_config_controller_"
	return reloadMetrics{
		count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "automatic_reloads_total",
			Help: "Total number of reload successes and failures of encryption configuration split by apiserver identity."}, []string{"status"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "automatic_reload_last_timestamp_seconds",
			Help: "Timestamp of the last successful or failed automatic reload of encryption configuration split by apiserver identity."}, []string{"status"}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "last_config_info",
			Help: "Information about the last applied encryption configuration with hash as label, split by apiserver identity."}, []string{"hash"}),
	}
}

func (m *reloadMetrics) reloaded(err error, now time.Time) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	m.count.WithLabelValues(status).Inc()
	m.last.WithLabelValues(status).Set(float64(now.Unix()))
}

func (m *reloadMetrics) loaded(sum [sha256.Size]byte) {
	m.info.Reset()
	m.info.WithLabelValues("sha256:" + hex.EncodeToString(sum[:])).Set(1)
}

// Collectors are the store's metrics.
func (s *Store) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.metrics.count, s.metrics.last, s.metrics.info}
}
