// Package reload applies changes of configuration files without a restart. Invalid content changes
// nothing and is retried, because a missing part may appear later. Files are read every few seconds
// instead of being watched. Mounts and symbolic links (a ConfigMap's volume) therefore need no
// special handling.
package reload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/zpages"
)

// Every is the interval for checking a file. Files that are applied together are checked more
// often: after renewing a certificate, users expect it to be used soon. Upstream's server is
// notified of such changes.
const (
	Every = 10 * time.Second
	often = 2 * time.Second
)

// File is one configuration file, or several that belong together, such as a certificate and its
// key. One goroutine owns it.
type File struct {
	paths []string
	every time.Duration
	what  string
	apply func(ctx context.Context, contents [][]byte) error
	log   *slog.Logger
	// told gets each new reason why the file is not in use, and nil once the file is in use again.
	told func(err error)

	used    [sha256.Size]byte // hash of the content in use
	refused string            // why the current content is not in use, or ""

	metrics *metrics // nil means no metrics
}

type metrics struct {
	count *prometheus.CounterVec
	last  *prometheus.GaugeVec
	info  *prometheus.GaugeVec
}

// Open reads the file and applies it. apply puts a content into use, or returns an error and leaves
// everything unchanged. what names the configuration in logs and metrics ("encryption").
func Open(ctx context.Context, what, path string, log *slog.Logger, apply func(ctx context.Context, data []byte) error) (*File, error) {
	prefix := "apiserver_" + what + "_config_controller_"
	server := prometheus.Labels{"apiserver_id_hash": zpages.Hashed(zpages.Identity())}
	gauge := func(name, help, label string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help, ConstLabels: server}, []string{label})
	}
	f := &File{
		paths: []string{path}, every: Every, what: what, log: log,
		apply: func(ctx context.Context, contents [][]byte) error { return apply(ctx, contents[0]) },
		metrics: &metrics{
			count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "automatic_reloads_total", ConstLabels: server,
				Help: "Total number of automatic reloads of " + what + " configuration split by status."}, []string{"status"}),
			last: gauge("automatic_reload_last_timestamp_seconds", "Timestamp of the last automatic reload of "+what+" configuration split by status.", "status"),
			info: gauge("last_config_info", "Information about the last applied "+what+" configuration with hash as label.", "hash"),
		},
	}
	return f, f.open(ctx)
}

// Notify sets a function that Run calls when the file cannot be used for a new reason, and with nil
// when the file is in use again. It must be called before Run.
func (f *File) Notify(told func(err error)) { f.told = told }

// OpenAll is Open for files that are applied together. They have no metrics.
func OpenAll(ctx context.Context, what string, paths []string, log *slog.Logger, apply func(ctx context.Context, contents [][]byte) error) (*File, error) {
	f := &File{paths: paths, every: often, what: what, apply: apply, log: log}
	return f, f.open(ctx)
}

func (f *File) open(ctx context.Context) error {
	contents, sum, err := f.read()
	if err != nil {
		return fmt.Errorf("failed to load %s configuration from %w", f.what, err)
	}
	if err := f.apply(ctx, contents); err != nil {
		return err
	}
	f.use(sum)
	return nil
}

// read returns the contents and a hash of all of them.
func (f *File) read() (contents [][]byte, sum [sha256.Size]byte, err error) {
	sums := sha256.New()
	for _, path := range f.paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, sum, fmt.Errorf("file %q: %w", path, err)
		}
		one := sha256.Sum256(data)
		if len(f.paths) == 1 {
			return [][]byte{data}, one, nil // a hash that users can compute
		}
		sums.Write(one[:])
		contents = append(contents, data)
	}
	return contents, [sha256.Size]byte(sums.Sum(nil)), nil
}

func (f *File) use(sum [sha256.Size]byte) {
	f.used, f.refused = sum, ""
	if f.metrics != nil {
		f.metrics.info.Reset()
		f.metrics.info.WithLabelValues("sha256:" + hex.EncodeToString(sum[:])).Set(1)
	}
}

// Run checks the file until ctx ends.
func (f *File) Run(ctx context.Context) {
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			f.Check(ctx, now)
		}
	}
}

// Check applies the file if its content differs from the one in use.
func (f *File) Check(ctx context.Context, now time.Time) {
	contents, sum, err := f.read()
	if err == nil {
		if sum == f.used {
			if f.refused != "" {
				f.refused = ""
				f.tell(nil)
			}
			return
		}
		err = f.apply(ctx, contents)
	}
	if ctx.Err() != nil {
		return
	}
	f.metrics.looked(err, now)
	files := strings.Join(f.paths, ", ")
	if err == nil {
		f.use(sum)
		f.log.Info("a changed configuration is in use", "configuration", f.what, "file", files)
		f.tell(nil)
		return
	}
	if text := err.Error(); text != f.refused { // logged once, though it is retried
		f.refused = text
		f.log.Error("cannot use a changed configuration; the previous one stays in use", "configuration", f.what, "file", files, "err", err)
		f.tell(err)
	}
}

func (f *File) tell(err error) {
	if f.told != nil {
		f.told(err)
	}
}

// looked counts an attempt to apply a changed file.
func (m *metrics) looked(err error, now time.Time) {
	if m == nil {
		return
	}
	status := "success"
	if err != nil {
		status = "failure"
	}
	m.count.WithLabelValues(status).Inc()
	m.last.WithLabelValues(status).Set(float64(now.Unix()))
}

// Collectors returns the file's metrics, under upstream's names.
func (f *File) Collectors() []prometheus.Collector {
	if f.metrics == nil {
		return nil
	}
	return []prometheus.Collector{f.metrics.count, f.metrics.last, f.metrics.info}
}
