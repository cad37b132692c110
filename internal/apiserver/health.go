package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/zpages"
)

func check(name string, run func(ctx context.Context) error) zpages.Check {
	return zpages.Check{Name: name, Run: run}
}

var errNotFinished = errors.New("not finished")

// finished returns a check of something that happens once.
func finished(name string, done <-chan struct{}) zpages.Check {
	return check(name, func(context.Context) error {
		select {
		case <-done:
			return nil
		default:
			return errNotFinished
		}
	})
}

// milestone is a step of the start that /readyz waits for. ch is closed when the step has
// succeeded once.
type milestone struct {
	ch   chan struct{}
	once *sync.Once
}

func newMilestone() milestone { return milestone{ch: make(chan struct{}), once: new(sync.Once)} }

// complete marks the milestone as reached if err is nil, and returns err.
func (m milestone) complete(err error) error {
	if err == nil {
		m.once.Do(func() { close(m.ch) })
	}
	return err
}

func (m milestone) reached() bool {
	select {
	case <-m.ch:
		return true
	default:
		return false
	}
}

// checks returns the health checks of a page, under upstream's names.
func (s *Server) checks(kind string) []zpages.Check {
	fine := func(context.Context) error { return nil }
	etcd := func(name, group string, at *registry.Place) zpages.Check {
		return zpages.Check{Name: name, Group: group, Run: func(ctx context.Context) error {
			if s.cfg.StoreHealth != nil && at == s.shared.Home {
				if err := s.cfg.StoreHealth(); err != nil {
					return err
				}
			}
			err := answers(ctx, at)
			if kind == "livez" && outage(err) {
				return nil // a new start of this server would not help
			}
			return err
		}}
	}
	checks := []zpages.Check{check("ping", fine), check("log", fine)}
	if kind != "readyz" {
		// This server calls itself without TLS.
		checks = append(checks, check("loopback-serving-certificate", fine))
	}
	checks = append(checks, etcd("etcd", "", s.shared.Home))
	if kind == "readyz" {
		checks = append(checks, etcd("etcd-readiness", "", s.shared.Home))
	}
	for i, at := range s.shared.Places[1:] {
		checks = append(checks, etcd(fmt.Sprintf("etcd-override-%d", i), "etcd", at))
		if kind == "readyz" {
			checks = append(checks, etcd(fmt.Sprintf("etcd-override-readiness-%d", i), "etcd-readiness", at))
		}
	}
	if sealed, ok := s.cfg.Store.(registry.EncryptedStore); ok && kind != "livez" {
		checks = append(checks, check("kms-providers", sealed.Health))
	}
	if kind == "readyz" {
		checks = append(checks, finished("informer-sync", s.remotes.Synced()))
	}
	hook := func(done <-chan struct{}, names ...string) {
		for _, name := range names {
			checks = append(checks, finished("poststarthook/"+name, done))
		}
	}
	started := func(names ...string) { hook(s.started, names...) }
	aggregated := func(names ...string) {
		for _, name := range names {
			checks = append(checks, finished(name, s.remotes.Synced()))
		}
	}
	// In upstream's order. Most of upstream's hooks have no counterpart here: they pass when the
	// bootstrap objects are stored, or with the part of the server that they belong to. Later steps
	// have a check of their own.
	started("start-apiserver-admission-initializer", "generic-apiserver-start-informers")
	if s.flow.gate != nil {
		started("priority-and-fairness-config-consumer", "priority-and-fairness-filter")
	}
	started("start-apiextensions-informers", "start-apiextensions-controllers", "crd-informer-synced", "start-system-namespaces-controller")
	hook(s.boot.trustPublished.ch, "start-cluster-authentication-info-controller")
	started("storage-readiness")
	hook(s.boot.tokensTracked.ch, "start-legacy-token-tracking-controller")
	// A Service's addresses and ports are part of its transaction, so nothing needs a repair.
	started("start-service-ip-repair-controllers")
	if s.cfg.PolicyStored != nil {
		hook(s.cfg.PolicyStored, "rbac/bootstrap-roles")
	} else {
		started("rbac/bootstrap-roles")
	}
	started("scheduling/bootstrap-system-priority-classes")
	if s.flow.gate != nil {
		started("priority-and-fairness-config-producer")
	}
	hook(s.living.kept.ch, "bootstrap-controller")
	started("start-kubernetes-service-cidr-controller")
	aggregated("poststarthook/start-kube-aggregator-informers", "poststarthook/apiservice-status-local-available-controller",
		"poststarthook/apiservice-status-remote-available-controller", "poststarthook/apiservice-registration-controller", "poststarthook/apiservice-discovery-controller",
		"poststarthook/kube-apiserver-autoregistration", "autoregister-completion", "poststarthook/apiservice-openapi-controller", "poststarthook/apiservice-openapiv3-controller")
	if kind == "readyz" {
		checks = append(checks, check("shutdown", func(context.Context) error {
			if s.stopping.Load() {
				return errors.New("process is shutting down")
			}
			return nil
		}))
	}
	if kind != "readyz" {
		checks = append(checks, s.cfg.Checks...)
	}
	if kind == "livez" && s.cfg.LivezGrace > 0 {
		for i := range checks {
			checks[i].Run = s.afterGrace(checks[i].Run)
		}
	}
	return checks
}

// errSlowStore means that a store did not answer a health check in time.
var errSlowStore = fmt.Errorf("the store has not answered within %s; it may have no leader", storeTimeout)

// storeTimeout limits a health check of a store, as upstream.
const storeTimeout = 2 * time.Second

// answers reports why a store does not answer. Its newest revision is known only to a store with a
// quorum.
func answers(ctx context.Context, at *registry.Place) error {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := at.Store.Revision(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return errSlowStore
	}
	return err
}

// outage reports whether an error is the store's, not this server's: it has no quorum, or cannot be
// reached.
func outage(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, errSlowStore)
}

// afterGrace returns a check that passes until the grace period is over.
func (s *Server) afterGrace(run func(ctx context.Context) error) func(ctx context.Context) error {
	until := s.createdAt.Add(s.cfg.LivezGrace)
	return func(ctx context.Context) error {
		if !s.clock().After(until) {
			return nil
		}
		return run(ctx)
	}
}

// serveHealth serves a page of checks.
func (s *Server) serveHealth(kind string) http.Handler {
	return &zpages.Health{Kind: kind, Checks: s.checks(kind), Results: s.metrics.Health,
		Failed: func(check string, err error) {
			s.log.Debug("a health check fails", "kind", kind, "check", check, "err", err)
		},
		NotFound: func(w http.ResponseWriter, _ *http.Request) { wire.NotFoundPath(w) },
	}
}

func plainText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
