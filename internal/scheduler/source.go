package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/reload"
	"github.com/knarr-project/knarr/internal/scheduler/settings"
)

// Source is the configuration of schedulers that run one after the other in this process, such as
// while it leads. It may be a file whose changes count without a restart. Safe for concurrent use.
//
// An event of the scheduler's Lease says that a changed file is in use, or why it is not.
type Source struct {
	// Lease is the Lease of the scheduler. It is set before Run and Use; the default is upstream's.
	Lease types.NamespacedName

	path    string
	file    *reload.File // nil without a file
	metrics *Metrics
	log     *slog.Logger

	mu      sync.Mutex
	current *settings.Configuration
	refused error // why the content of the file is not in use
	running *Scheduler
}

// Reasons and the action of the events about a configuration file.
const (
	reasonUsed    = "ConfigurationChanged"
	reasonRefused = "ConfigurationRefused"
	reasonIdle    = "ConfigurationWithoutEffect"
	actConfigure  = "Configuring"
)

// OpenSource reads a configuration file; "" means upstream's defaults. Run then follows the file.
func OpenSource(ctx context.Context, path string, metrics *Metrics, log *slog.Logger) (*Source, error) {
	c := &Source{
		Lease: types.NamespacedName{Namespace: "kube-system", Name: "kube-scheduler"}, path: path, metrics: metrics, log: log, current: settings.Default(),
	}
	if path == "" {
		return c, nil
	}
	var err error
	c.file, err = reload.OpenAll(ctx, "scheduler", []string{path}, log, func(_ context.Context, contents [][]byte) error {
		return c.load(contents[0])
	})
	if err != nil {
		return nil, err
	}
	c.file.Notify(c.changed)
	return c, nil
}

// load puts a content into use. After an error the old configuration stays.
func (c *Source) load(text []byte) error {
	parsed, err := settings.ParseFile(c.path, text)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.tryOn(parsed); err != nil {
		var errs []error
		for _, one := range settings.Each(err) {
			errs = append(errs, fmt.Errorf("%s: %w", c.path, one))
		}
		return errors.Join(errs...)
	}
	c.current = parsed
	c.metrics.configured(nil)
	for _, text := range parsed.Idle() {
		c.log.Warn("a field of the scheduler's configuration has no effect", "file", c.path, "field", text)
	}
	if c.running != nil {
		c.event(corev1.EventTypeNormal, reasonUsed, c.path+" is in use")
		c.warn()
	}
	return nil
}

// changed handles the end of a use of the file, or of a refusal.
func (c *Source) changed(refused error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = refused
	if refused == nil {
		return
	}
	c.metrics.configured(refused)
	if c.running != nil {
		c.complain()
	}
}

// complain records why the file is not in use. The caller holds mu.
func (c *Source) complain() {
	c.event(corev1.EventTypeWarning, reasonRefused, "the previous configuration stays in use: "+strings.ReplaceAll(c.refused.Error(), "\n", "; "))
}

// warn names the fields in use that have no effect. The caller holds mu.
func (c *Source) warn() {
	if idle := c.current.Idle(); len(idle) > 0 {
		c.event(corev1.EventTypeWarning, reasonIdle, c.path+": "+strings.Join(idle, "; "))
	}
}

// event records an event of the running scheduler's Lease.
func (c *Source) event(kind, reason, note string) {
	lease := &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: c.Lease.Namespace, Name: c.Lease.Name}
	c.running.events.Eventf(lease, nil, kind, reason, actConfigure, "%s", note)
}

// tryOn gives a configuration to the running scheduler, or else checks that one could use it.
func (c *Source) tryOn(parsed *settings.Configuration) error {
	if c.running != nil {
		return c.running.Configure(parsed, nil)
	}
	return New(Config{}).Configure(parsed, nil)
}

// Current returns the configuration in use.
func (c *Source) Current() *settings.Configuration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Run follows the file until ctx ends.
func (c *Source) Run(ctx context.Context) {
	if c.file == nil {
		<-ctx.Done()
		return
	}
	c.file.Run(ctx)
}

// Use configures a scheduler before it runs, and again after each change of the file until release.
func (c *Source) Use(s *Scheduler) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.Configure(c.current, nil); err != nil {
		return nil, err
	}
	c.running = s
	c.warn()
	if c.refused != nil { // while another scheduler led
		c.complain()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.running == s {
			c.running = nil
		}
	}, nil
}
