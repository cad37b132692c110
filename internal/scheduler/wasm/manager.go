package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/schedulerplugin"
)

// Times between attempts to load a plugin whose source is not available.
const (
	firstRetry = 2 * time.Second
	lastRetry  = 5 * time.Minute
)

// pullTimeout bounds the reading of one source.
const pullTimeout = time.Minute

// Config is what a Manager needs.
type Config struct {
	Client client.Interface
	Events client.Recorder
	// Folder has the files that specs may name; empty allows none.
	Folder string
	// Extend gives the scheduler its added plugins, and returns when new cycles use them.
	Extend func(ctx context.Context, added []framework.Addition) error
	// Reject rejects a pod that waits in Permit, for a plugin; nil means that no pod waits.
	Reject func(plugin string, pod types.UID) bool
	Log    *slog.Logger
}

// Manager loads the plugins that SchedulerPlugin objects name, and gives them to the scheduler. Run
// owns its state.
type Manager struct {
	cfg     Config
	host    *Host
	sources sources
	view    client.ViewOf[*unstructured.Unstructured]
	loaded  map[string]*loaded

	wake   chan struct{}
	mu     sync.Mutex // guards health
	health map[string]Failure
}

// loaded is a plugin as far as it was loaded.
type loaded struct {
	uid        types.UID
	generation int64 // of the spec that was tried last
	guest      *Guest
	spec       schedulerplugin.Spec // of guest
	err        error                // of the last attempt
	retryAt    time.Time
	wait       time.Duration
}

// NewManager makes a manager; Run starts it.
func NewManager(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Manager{cfg: cfg, sources: sources{cfg.Client, cfg.Folder}, loaded: map[string]*loaded{}, wake: make(chan struct{}, 1), health: map[string]Failure{}}
}

// Run follows the objects until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	if !m.open(ctx) {
		return nil
	}
	_, done := m.view.Subscribe(ctx, func(client.TypedEvent[*unstructured.Unstructured]) { m.poke() })
	defer func() {
		<-done
		for _, l := range m.loaded {
			if l.guest != nil {
				l.guest.Close()
			}
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-timer.C:
		}
		next := m.reconcile(ctx)
		timer.Reset(next)
	}
}

func (m *Manager) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// open opens the View once the kind is served. Another vendor's API server may never serve it.
func (m *Manager) open(ctx context.Context) bool {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 30*time.Second) {
		view, err := m.cfg.Client.View(ctx, schedulerplugin.Resource, client.Scope{})
		if err == nil {
			m.view = client.ViewOf[*unstructured.Unstructured]{View: view}
			return true
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) && ctx.Err() == nil {
			m.cfg.Log.Warn("cannot read SchedulerPlugins", "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// reconcile loads what has changed, and returns the time until the next attempt.
func (m *Manager) reconcile(ctx context.Context) time.Duration {
	next := time.Hour
	present := map[string]bool{}
	for _, u := range m.view.List("", nil) {
		if u.GetDeletionTimestamp() != nil {
			continue
		}
		name := u.GetName()
		present[name] = true
		l := m.loaded[name]
		if l == nil {
			l = &loaded{}
			m.loaded[name] = l
		}
		if l.uid != u.GetUID() || l.generation != u.GetGeneration() {
			l.uid, l.generation, l.wait, l.retryAt = u.GetUID(), u.GetGeneration(), 0, time.Time{}
			m.load(ctx, l, u)
		} else if l.err != nil && !time.Now().Before(l.retryAt) {
			m.load(ctx, l, u)
		}
		if l.err != nil {
			next = min(next, max(time.Until(l.retryAt), time.Millisecond))
		}
		m.report(ctx, u, l)
	}
	for name, l := range m.loaded {
		if present[name] {
			continue
		}
		delete(m.loaded, name)
		m.forgetHealth(name)
		if l.guest != nil {
			m.swap(ctx, l.guest)
			m.cfg.Log.Info("scheduler plugin unloaded", "plugin", name)
		}
	}
	return next
}

// load loads the newest spec of an object. After an error the guest of the former spec goes on.
func (m *Manager) load(ctx context.Context, l *loaded, u *unstructured.Unstructured) {
	guest, spec, err := m.compile(ctx, u)
	if err != nil {
		l.err = err
		l.wait = min(max(2*l.wait, firstRetry), lastRetry)
		l.retryAt = time.Now().Add(l.wait)
		m.cfg.Log.Warn("scheduler plugin not loaded", "plugin", u.GetName(), "error", err)
		m.cfg.Events.Eventf(u, nil, "Warning", reasonOf(err), "Load", "%s", err)
		return
	}
	old := l.guest
	l.guest, l.spec, l.err = guest, *spec, nil
	m.forgetHealth(u.GetName())
	m.swap(ctx, old)
	m.cfg.Log.Info("scheduler plugin loaded", "plugin", u.GetName(), "sha256", spec.SHA256, "points", guest.Points())
	m.cfg.Events.Eventf(u, nil, "Normal", schedulerplugin.ReasonLoaded, "Load", "Loaded %s", spec.SHA256)
}

// swap gives the scheduler the current guests. old, if not nil, ends with its last cycle.
func (m *Manager) swap(ctx context.Context, old *Guest) {
	var added []framework.Addition
	for _, name := range slices.Sorted(maps.Keys(m.loaded)) {
		if l := m.loaded[name]; l.guest != nil {
			added = append(added, framework.Addition{Name: name, Profiles: l.spec.Profiles, AddTo: func(guest *Guest, weight int64) func(*framework.Profile) {
				return func(p *framework.Profile) { guest.AddTo(p, weight) }
			}(l.guest, max(l.spec.Weight, 1))})
		}
	}
	if err := m.cfg.Extend(ctx, added); err == nil && old != nil {
		old.Close()
	}
}

func (m *Manager) compile(ctx context.Context, u *unstructured.Unstructured) (*Guest, *schedulerplugin.Spec, error) {
	p, err := schedulerplugin.From(u)
	if err != nil {
		return nil, nil, loadError{schedulerplugin.ReasonInvalid, err}
	}
	settings, err := settingsOf(p)
	if err != nil {
		return nil, nil, loadError{schedulerplugin.ReasonInvalid, err}
	}
	pull, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	module, err := m.sources.read(pull, &p.Spec)
	if err != nil {
		return nil, nil, err
	}
	settings.Log, settings.Events = m.cfg.Log, m.cfg.Events
	settings.Failed = func(f Failure) { m.failed(u, f) }
	settings.Recovered = func() { m.recovered(u.GetName()) }
	if m.cfg.Reject != nil {
		settings.Reject = func(pod types.UID) bool { return m.cfg.Reject(p.Name, pod) }
	}
	if m.host == nil {
		m.host = NewHost()
	}
	guest, err := m.host.Compile(ctx, module, settings)
	if err != nil {
		return nil, nil, loadError{schedulerplugin.ReasonModule, err}
	}
	return guest, &p.Spec, nil
}

// settingsOf returns the settings of a spec. Absent fields have the defaults of the definition.
func settingsOf(p *schedulerplugin.SchedulerPlugin) (Settings, error) {
	s := Settings{
		Name: p.Name, Points: p.Spec.Points, Config: p.Spec.Config, IgnoreFailures: p.Spec.FailurePolicy == schedulerplugin.Ignore, Local: p.Spec.KeepAnswers,
		Deadline: time.Duration(p.Spec.Limits.DeadlineMilliseconds) * time.Millisecond,
	}
	if text := p.Spec.Limits.Memory; text != "" {
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Value() < pageSize || q.Value() > maxMemory {
			return s, fmt.Errorf("spec.limits.memory is %q: a quantity from 64Ki to 1Gi is needed", text)
		}
		s.Memory = q.Value()
	}
	return s, nil
}

func reasonOf(err error) string {
	var e loadError
	if errors.As(err, &e) {
		return e.reason
	}
	return schedulerplugin.ReasonModule
}
