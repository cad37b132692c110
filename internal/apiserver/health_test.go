package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// failingStore is a store that fails writes of keys with any of these parts.
type failingStore struct {
	store.Store
	not atomic.Pointer[[]string]
}

func (r *failingStore) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	for _, op := range ops {
		for _, part := range *r.not.Load() {
			if strings.Contains(op.Key, part) {
				return store.TxnResult{}, store.ErrUnavailable
			}
		}
	}
	return r.Store.Commit(ctx, conditions, ops...)
}

func TestStartupChecksPassWhenTheirObjectsAreStored(t *testing.T) {
	t.Parallel()
	policy := make(chan struct{})
	var db *failingStore
	s := newTestServer(t, func(c *Config) {
		db = &failingStore{Store: c.Store}
		db.not.Store(&[]string{"legacy-service-account-token-tracking", "endpointslices"})
		c.Store, c.PolicyStored = db, policy
		c.ServiceCIDRs, c.Advertise = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}, netip.MustParseAddrPort("192.0.2.1:6443")
	})
	const hook = "/readyz/poststarthook/"
	check := func(want map[string]int) func() error {
		return func() error {
			for path, code := range want {
				if got, _, _ := do(t, s, "GET", path, ""); got != code {
					return fmt.Errorf("%s: %d, wanted %d", path, got, code)
				}
			}
			return nil
		}
	}
	refused, fine := http.StatusInternalServerError, http.StatusOK
	s.startBackground()
	eventually(t, check(map[string]int{
		hook + "start-system-namespaces-controller": fine, hook + "start-cluster-authentication-info-controller": fine,
		hook + "start-legacy-token-tracking-controller": refused, hook + "bootstrap-controller": refused, hook + "rbac/bootstrap-roles": refused, "/readyz": refused,
	}))
	close(policy)
	if err := check(map[string]int{hook + "rbac/bootstrap-roles": fine, "/readyz": refused})(); err != nil {
		t.Error(err)
	}
	db.not.Store(&[]string{"endpointslices"})
	eventually(t, check(map[string]int{hook + "start-legacy-token-tracking-controller": fine, hook + "bootstrap-controller": refused, "/readyz": refused}))
	db.not.Store(&[]string{})
	eventually(t, check(map[string]int{"/readyz": fine}))
	for _, page := range []string{"/healthz", "/livez", "/readyz"} {
		_, _, body := do(t, s, "GET", page+"?verbose", "")
		for _, name := range expectedChecks {
			if !strings.Contains(body, "[+]"+name+" ok\n") {
				t.Errorf("%s has no passed check %s", page, name)
			}
		}
	}
}

// expectedChecks are the checks that upstream's e2e test of the health pages expects on each page.
var expectedChecks = []string{
	"ping", "log", "etcd", "poststarthook/start-apiserver-admission-initializer", "poststarthook/generic-apiserver-start-informers",
	"poststarthook/start-apiextensions-informers", "poststarthook/start-apiextensions-controllers", "poststarthook/crd-informer-synced",
	"poststarthook/bootstrap-controller", "poststarthook/start-system-namespaces-controller", "poststarthook/start-service-ip-repair-controllers",
	"poststarthook/scheduling/bootstrap-system-priority-classes", "poststarthook/start-cluster-authentication-info-controller",
	"poststarthook/start-kube-aggregator-informers", "poststarthook/apiservice-registration-controller",
	"poststarthook/apiservice-status-local-available-controller", "poststarthook/apiservice-status-remote-available-controller",
	"poststarthook/kube-apiserver-autoregistration", "autoregister-completion", "poststarthook/apiservice-openapi-controller", "poststarthook/storage-readiness",
}

func TestServerIsAliveDuringItsStart(t *testing.T) {
	now := time.Now()
	s := newTestServer(t, func(c *Config) { c.LivezGrace, c.Clock = time.Minute, func() time.Time { return now } })
	ask := func(path string) int {
		// The bootstrap objects are never created, because the server does not run.
		code, _, _ := do(t, s, "GET", path, "")
		return code
	}
	if livez, healthz, readyz := ask("/livez"), ask("/healthz"), ask("/readyz"); livez != http.StatusOK || healthz != http.StatusInternalServerError || readyz != http.StatusInternalServerError {
		t.Errorf("during the start: %d, %d, %d", livez, healthz, readyz)
	}
	now = now.Add(time.Minute + 1)
	if livez := ask("/livez"); livez != http.StatusInternalServerError {
		t.Errorf("after the grace period: %d", livez)
	}
}

func TestFlagzShowsTheSettings(t *testing.T) {
	s := newTestServer(t, func(c *Config) {
		c.Settings = func() map[string]string { return map[string]string{"event-ttl": "1h0m0s"} }
	})
	cfg, _ := overHTTP(t, s, "application/json")
	for path, want := range map[string]string{
		"/flagz": "\nevent-ttl=1h0m0s\n", "/": `"/flagz"`, "/statusz": "Paths  /flagz /healthz /livez /metrics /readyz /statusz /version\n",
	} {
		if resp, body := fetch(t, cfg.Host+path); resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %s, want %q", path, resp.StatusCode, body, want)
		}
	}
}

func TestProfilingCanBeDisabled(t *testing.T) {
	for off, want := range map[bool]int{false: http.StatusOK, true: http.StatusNotFound} {
		s := newTestServer(t, func(c *Config) { c.NoProfiling = off })
		cfg, _ := overHTTP(t, s, "application/json")
		if resp, _ := fetch(t, cfg.Host+"/debug/pprof/"); resp.StatusCode != want {
			t.Errorf("off %v: %s", off, resp.Status)
		}
		if resp, _ := fetch(t, cfg.Host+"/debug/api_priority_and_fairness/dump_requests"); resp.StatusCode != http.StatusOK {
			t.Errorf("off %v: the dump pages: %s", off, resp.Status)
		}
	}
}
