package knarrtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controllers"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/knarrtest/internal/crd"
	"github.com/knarr-project/knarr/knarrtest/internal/hooks"
)

// Cluster is a running cluster. Safe for concurrent use.
type Cluster struct {
	options
	dir    string
	remove bool // remove the folder at the end
	log    *slog.Logger
	kept   *tail // the last log output, if the test does not receive the log
	server *controlplane.Server
	admin  *rest.Config
	hooks  *hooks.Server
	nodes  *fleet
	// renewEvery is the interval at which hollow nodes renew their leases, well within the node
	// controller's grace period.
	renewEvery time.Duration

	cancel func()
	ended  chan struct{}
	err    error // the process's error, once it has ended

	stop    sync.Once
	stopErr error
}

// Start starts a cluster that ends with the test. It fails the test if the cluster does not start.
func Start(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	c, err := New(opts...)
	if err != nil {
		t.Fatalf("knarrtest: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.dumpTo(t)
		}
		if err := c.Stop(); err != nil {
			t.Errorf("knarrtest: %v", err)
		}
	})
	return c
}

// New starts a cluster that runs until Stop. It returns when the cluster is usable.
func New(opts ...Option) (*Cluster, error) {
	c := &Cluster{ended: make(chan struct{})}
	for _, o := range opts {
		o(&c.options)
	}
	c.kept = &tail{most: 16 << 10}
	if c.log = c.options.log; c.log == nil {
		c.log = slog.New(slog.NewTextHandler(c.kept, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	if c.dir = c.folder; c.dir == "" {
		var err error
		if c.dir, err = os.MkdirTemp("", "knarrtest-"); err != nil {
			return nil, err
		}
		c.remove = true
	}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// start starts the control plane and then everything that needs it.
func (c *Cluster) start() error {
	cfg, err := c.configure()
	if err != nil {
		close(c.ended)
		return err
	}
	o := controlplane.Options{Config: cfg, Log: c.log, Unsynced: c.folder == "", ShutdownTimeout: stopTimeout}
	if c.clock != nil {
		o.Clock = &c.clock.moved
	}
	if c.chosen {
		o.Controllers = func(name string) bool { return slices.Contains(c.controllers, name) }
	}
	c.renewEvery = min(10*time.Second, cfg.NodeMonitorGrace.Duration/4)
	c.server = controlplane.New(o)
	c.nodes = newFleet(c)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	ready := make(chan struct{})
	go func() {
		defer close(c.ended)
		c.err = process.Run(ctx, c.phases(), nil, func() { close(ready) }, c.log)
	}()
	select {
	case <-ready:
	case <-c.ended:
		if c.err == nil {
			c.err = errors.New("the cluster ended while it started")
		}
		return c.err
	}
	if err := c.connect(); err != nil {
		return err
	}
	return c.install()
}

func (c *Cluster) phases() []process.Phase {
	var beside sync.WaitGroup
	beside.Go(registry.Prepare) // data about built-in kinds, computed once per program
	s := c.server
	parts := process.Phase{{Name: "first objects", Start: s.AwaitFirstObjects}}
	if !c.chosen || len(c.controllers) > 0 {
		parts = append(parts, process.Component{Name: "controllers", Start: s.StartControllers})
	}
	if !c.noScheduler {
		parts = append(parts, process.Component{Name: "scheduler", Start: s.StartScheduler})
	}
	return []process.Phase{
		{{Name: "keys", Start: s.StartKeys}, {Name: "store", Start: s.StartStore}},
		{{Name: "API server", Start: func(ctx context.Context) (func() error, error) {
			beside.Wait()
			return s.StartAPI(ctx)
		}}},
		{{Name: "leadership", Start: s.StartLeadership}},
		parts,
		{{Name: "nodes", Start: c.nodes.start}},
	}
}

// stopTimeout is the time limit for running requests when a cluster stops. The test has ended and
// needs no answers.
const stopTimeout = 50 * time.Millisecond

// serviceAccounts is the controller that creates service accounts in namespaces.
const serviceAccounts = "serviceaccount-controller"

// configure builds the configuration from options and flags.
func (c *Cluster) configure() (*config.Config, error) {
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.AdvertiseAddress, cfg.NodeName = c.dir, "127.0.0.1:0", "127.0.0.1", "knarrtest"
	// Do not wait for connections of clients that still exist.
	cfg.APIServer.ShutdownIdle.Duration = 1
	cfg.Snapshots.Schedule = "off"
	f := pflag.NewFlagSet("knarrtest", pflag.ContinueOnError)
	cfg.AddFlags(f, config.Process|config.Server|config.Controlling)
	// Loopback is not reachable from inside the cluster.
	flags := []string{"--endpoint-reconciler-type=none"}
	if c.audit != "" {
		policy := filepath.Join(c.dir, "audit-policy.yaml")
		content := fmt.Sprintf("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: %s\n", c.audit)
		if err := os.WriteFile(policy, []byte(content), 0o600); err != nil {
			return nil, err
		}
		flags = append(flags, "--audit-policy-file="+policy, "--audit-log-path="+c.AuditLog())
	}
	if c.chosen {
		known := controllers.Names()
		for _, name := range c.controllers {
			if !slices.Contains(known, name) {
				return nil, fmt.Errorf("WithControllers: there is no controller %q", name)
			}
		}
		if !slices.Contains(c.controllers, serviceAccounts) {
			flags = append(flags, "--disable-admission-plugins=ServiceAccount")
		}
	}
	if err := f.Parse(append(flags, c.flags...)); err != nil {
		return nil, fmt.Errorf("WithFlags: %w", config.Explain(f, err))
	}
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	return &cfg, nil
}

// Stop ends the cluster. It returns when the goroutines have ended and the temporary folder is
// removed. If the cluster had ended before, the error is the cause.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		if c.cancel != nil {
			c.cancel()
		}
		<-c.ended
		c.stopErr = c.err
		if c.remove {
			c.stopErr = errors.Join(c.stopErr, os.RemoveAll(c.dir))
		}
	})
	return c.stopErr
}

// install installs definitions and webhooks.
func (c *Cluster) install() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	crds, err := crd.Read(c.crdPaths, true)
	if err != nil {
		return fmt.Errorf("WithCRDs: %w", err)
	}
	for _, object := range c.crds {
		crds = append(crds, object.DeepCopy())
	}
	if err := crd.Create(ctx, c.admin, crds); err != nil {
		return err
	}
	if err := crd.Wait(ctx, c.admin, crds, pollEvery); err != nil {
		return err
	}
	if !c.hasHooks {
		return nil
	}
	if c.hooks, err = hooks.New("127.0.0.1", 0, filepath.Join(c.dir, "webhooks")); err != nil {
		return err
	}
	if err := c.options.hooks.Read(c.hookPaths, true); err != nil {
		return fmt.Errorf("WithWebhooks: %w", err)
	}
	c.hooks.Lead(&c.options.hooks)
	return c.options.hooks.Create(ctx, c.admin)
}

// Dir returns the cluster's folder. Unless [OnDisk] named it, it is removed when the cluster ends.
func (c *Cluster) Dir() string { return c.dir }

// AuditLog returns the path of the file that [WithAudit] writes.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

// Webhooks is the address and certificate for a test's webhook server.
type Webhooks struct {
	Host    string
	Port    int
	CertDir string // tls.crt and tls.key
	CA      []byte // CA of the certificate, PEM
}

// URL returns the URL of a path.
func (w Webhooks) URL(path string) string {
	return (&hooks.Server{Host: w.Host, Port: w.Port}).URL(path)
}

// Webhooks returns the address and certificate that [WithWebhooks] expects of the test's server;
// without that option the zero value. The port is not reserved until the test listens on it.
func (c *Cluster) Webhooks() Webhooks {
	if c.hooks == nil {
		return Webhooks{}
	}
	return Webhooks(*c.hooks)
}

// tail keeps the end of its input.
type tail struct {
	mu   sync.Mutex
	most int
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if over := len(t.data) - t.most; over > 0 {
		t.data = append([]byte(nil), t.data[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.data))
}
