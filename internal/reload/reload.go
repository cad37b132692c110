// Package reload follows files of configuration: what changes in them counts without a restart. A content that can not be used changes
// nothing and is tried again, since what it lacks may come. Files are read every few seconds instead of being watched for, so that mounts and
// symbolic links (a ConfigMap's volume) need no thought.
package reload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Every is how often a file is looked at.
const Every = 10 * time.Second

// File is one file of configuration. It belongs to one goroutine.
type File struct {
	path  string
	what  string
	apply func(ctx context.Context, data []byte) error
	log   *slog.Logger

	used    [sha256.Size]byte // of the content that counts
	refused string            // why the present content does not, when it does not

	count *prometheus.CounterVec
	last  *prometheus.GaugeVec
	info  *prometheus.GaugeVec
}

// Open reads the file and applies it. apply makes a content count, or says why it can not; then everything stays as it was. what names the
// configuration in logs and metrics ("encryption").
func Open(ctx context.Context, what, path string, log *slog.Logger, apply func(ctx context.Context, data []byte) error) (*File, error) {
	prefix := "apiserver_" + what + "_config_controller_"
	gauge := func(name, help, label string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, []string{label})
	}
	f := &File{
		path: path, what: what, apply: apply, log: log,
		count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "automatic_reloads_total",
			Help: "Total number of automatic reloads of " + what + " configuration split by status."}, []string{"status"}),
		last: gauge("automatic_reload_last_timestamp_seconds", "Timestamp of the last automatic reload of "+what+" configuration split by status.", "status"),
		info: gauge("last_config_info", "Information about the last applied "+what+" configuration with hash as label.", "hash"),
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to load %s configuration from file %q: %w", what, path, err)
	}
	if err := apply(ctx, data); err != nil {
		return nil, err
	}
	f.counts(sha256.Sum256(data))
	return f, nil
}

func (f *File) counts(sum [sha256.Size]byte) {
	f.used, f.refused = sum, ""
	f.info.Reset()
	f.info.WithLabelValues("sha256:" + hex.EncodeToString(sum[:])).Set(1)
}

// Run looks at the file until ctx ends.
func (f *File) Run(ctx context.Context) {
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			f.Look(ctx, now)
		}
	}
}

// Look applies the file if its content is another one than that which counts.
func (f *File) Look(ctx context.Context, now time.Time) {
	data, err := os.ReadFile(f.path)
	sum := sha256.Sum256(data)
	if err == nil {
		if sum == f.used {
			f.refused = ""
			return
		}
		err = f.apply(ctx, data)
	}
	if ctx.Err() != nil {
		return
	}
	status := "success"
	if err != nil {
		status = "failure"
	}
	f.count.WithLabelValues(status).Inc()
	f.last.WithLabelValues(status).Set(float64(now.Unix()))
	if err == nil {
		f.counts(sum)
		f.log.Info("a changed configuration is used", "configuration", f.what, "file", f.path)
		return
	}
	if text := err.Error(); text != f.refused { // told once, though it is tried again and again
		f.refused = text
		f.log.Error("a changed configuration is not used; the one before stays", "configuration", f.what, "file", f.path, "err", err)
	}
}

// Collectors are the file's metrics, under upstream's names.
func (f *File) Collectors() []prometheus.Collector {
	return []prometheus.Collector{f.count, f.last, f.info}
}
