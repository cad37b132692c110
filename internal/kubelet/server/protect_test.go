package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
)

// onlySubresource allows every user everything with one subresource of nodes.
type onlySubresource string

func (o onlySubresource) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.Resource == "nodes" && a.Name == "n1" && a.Subresource == string(o) {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "", nil
}

type anyUser struct{}

func (anyUser) Authenticate(*http.Request) (auth.User, bool, error) {
	return auth.User{Name: "anyUser"}, true, nil
}

func TestNodeEndpointsRequireTheirSubresource(t *testing.T) {
	for _, tc := range []struct {
		path, allowed string
		want          int
	}{
		{"/statusz", "statusz", http.StatusOK},
		{"/statusz", "proxy", http.StatusForbidden},
		{"/flagz", "configz", http.StatusOK},
		{"/flagz", "proxy", http.StatusForbidden},
		{"/flagz", "statusz", http.StatusForbidden},
		{"/healthz", "healthz", http.StatusOK},
		{"/configz", "configz", http.StatusOK},
	} {
		s := &Server{Config{
			Authenticator: anyUser{}, Authorizer: onlySubresource(tc.allowed), NodeName: "n1", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Settings: func() map[string]string { return map[string]string{"max-pods": "110"} },
		}}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, nil))
		if w.Code != tc.want {
			t.Errorf("GET %s with the right nodes/%s: %d, want %d: %s", tc.path, tc.allowed, w.Code, tc.want, w.Body)
		}
	}
}

func TestResultsOfHealthChecksAreServed(t *testing.T) {
	healthy := error(nil)
	s := &Server{Config{
		Authenticator: anyUser{}, Authorizer: onlySubresource("metrics"), NodeName: "n1", Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Healthy: func() error { return healthy },
	}}
	h := s.Handler()
	get := func(path string, allowed onlySubresource) *httptest.ResponseRecorder {
		s.Authorizer = allowed
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	for _, path := range []string{"/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop"} {
		if w := get(path, "healthz"); w.Code != http.StatusOK || w.Body.String() != "ok" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	healthy = errors.New("the runtime hangs")
	if w := get("/healthz?verbose", "healthz"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "[-]syncloop failed") {
		t.Errorf("/healthz: %d %s", w.Code, w.Body)
	}
	if w := get("/healthz/nothing", "healthz"); w.Code != http.StatusNotFound {
		t.Errorf("an unknown check: %d", w.Code)
	}
	w := get("/metrics/slis", "metrics")
	for _, line := range []string{
		`kubernetes_healthcheck{name="syncloop",type="healthz"} 0`, `kubernetes_healthcheck{name="ping",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="syncloop",status="success",type="healthz"} 2`, `kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 1`,
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("no line %s in\n%s", line, w.Body)
		}
	}
}
