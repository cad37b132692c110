package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
)

func TestProfilesNeedAuthorization(t *testing.T) {
	get := func(s *Server, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	open := newTestServer(t)
	if w := get(open, "/debug/pprof/goroutine?debug=1"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "goroutine profile:") {
		t.Errorf("goroutines: %d %.100s", w.Code, w.Body)
	}
	if w := get(open, "/debug/pprof"); w.Code != http.StatusFound || w.Header().Get("Location") != "/debug/pprof/" {
		t.Errorf("the folder without its slash: %d to %q", w.Code, w.Header().Get("Location"))
	}
	closed := newTestServer(t, func(cfg *Config) { cfg.Security.Authorizer = auth.Authorizers{} })
	if w := get(closed, "/debug/pprof/goroutine"); w.Code != http.StatusForbidden {
		t.Errorf("a user who may not see profiles got %d", w.Code)
	}
}
