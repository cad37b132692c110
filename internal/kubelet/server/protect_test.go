package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
