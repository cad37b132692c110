package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/knarr-project/knarr/internal/auth"
)

// nameGroupAuthenticator trusts the user in a request's header: "NAME GROUP".
type nameGroupAuthenticator struct{}

func (nameGroupAuthenticator) Authenticate(r *http.Request) (auth.User, bool, error) {
	name, group, _ := strings.Cut(r.Header.Get("X-Test-User"), " ")
	if name == "" {
		return auth.Anonymous(), true, nil
	}
	return auth.User{Name: name, Groups: []string{group, user.AllAuthenticated}}, true, nil
}

// Ten times as many requests as seats, from slow clients: health checks, leases and the cluster's
// own components are served all the same, the rest is refused with Retry-After. After the flood the
// server serves as before.
func TestFloodDoesNotDelayHealthLeasesAndSystemClients(t *testing.T) {
	const seats = 8
	s := newTestServer(t, func(c *Config) {
		c.MaxRequests, c.RequestTimeout, c.Security.Authenticator = seats, 8*time.Second, nameGroupAuthenticator{}
	})
	url, _, _ := running(t, s)
	ask := func(who, method, path, body string) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("X-Test-User", who)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		return resp, err
	}
	const tenant, maps = "tenant tenants", "/api/v1/namespaces/default/configmaps"
	eventually(t, func() error {
		if resp, err := ask(tenant, "GET", maps, ""); err != nil || resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == "" {
			return fmt.Errorf("flow control is not configured yet: %v", err)
		}
		return nil
	})

	var flood sync.WaitGroup
	var mu sync.Mutex // guards answers
	answers := map[int]int{}
	pour := func() {
		body, send := io.Pipe()
		defer func() { _ = send.Close() }()
		req, err := http.NewRequestWithContext(t.Context(), "POST", url+maps, body)
		if err != nil {
			return
		}
		req.Header.Set("X-Test-User", tenant)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		_ = resp.Body.Close()
		mu.Lock()
		defer mu.Unlock()
		answers[resp.StatusCode]++
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			t.Error("a request was refused without Retry-After")
		}
	}
	var ebb atomic.Bool
	for range 10 * seats {
		flood.Go(func() {
			// Repeated, because waiting requests may leave before they are seen.
			for pour(); !ebb.Load() && t.Context().Err() == nil; pour() {
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	eventually(t, func() error {
		var page strings.Builder
		if _, err := s.flow.gate.Show(&page, "dump_requests", false); err != nil || strings.Count(page.String(), "tenant") < 5*seats {
			return fmt.Errorf("the flood has not arrived yet: %v", err)
		}
		return nil
	})
	const lease = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"%s"}}`
	for i, r := range []struct{ who, method, path, body string }{
		{"anybody tenants", "GET", "/livez", ""},
		{"anybody tenants", "GET", "/readyz", ""},
		{"system:node:n system:nodes", "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", fmt.Sprintf(lease, "n")},
		{"system:kube-controller-manager none", "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", fmt.Sprintf(lease, "leader")},
		{"system:kube-scheduler none", "GET", "/api/v1/pods", ""},
		{"system:serviceaccount:kube-system:some system:serviceaccounts:kube-system", "GET", maps, ""},
		{"admin system:masters", "GET", maps, ""},
	} {
		if resp, err := ask(r.who, r.method, r.path, r.body); err != nil || resp.StatusCode >= 300 {
			t.Errorf("request %d (%s %s of %s) was not served during the flood: %v %v", i, r.method, r.path, r.who, resp, err)
		}
	}
	ebb.Store(true)
	flood.Wait()
	if answers[http.StatusTooManyRequests] == 0 || answers[http.StatusGatewayTimeout] == 0 {
		t.Errorf("answers to the flood, by code: %v; some got seats and were too slow, the others were refused", answers)
	}
	if resp, err := ask(tenant, "GET", maps, ""); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("after the flood: %v %v", resp, err)
	}
}
