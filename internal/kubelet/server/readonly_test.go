package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
)

type noUser struct{}

func (noUser) Authenticate(*http.Request) (auth.User, bool, error) { return auth.User{}, false, nil }

func TestTheReadOnlyPortServesReadsWithoutAuthentication(t *testing.T) {
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/pods", 200}, {"GET", "/healthz", 200}, {"POST", "/pods", 405}, {"POST", "/exec/default/one/main", 405},
		{"GET", "/exec/default/one/main", 404}, {"GET", "/containerLogs/default/one/main", 404}, {"GET", "/logs/", 404}, {"GET", "/configz", 404}, {"GET", "/debug/pprof/", 404},
	} {
		s := &Server{Config{ReadOnly: true, Pods: onePod{}, SystemLogs: t.TempDir(), Checkpoints: t.TempDir(), Authenticator: noUser{}}}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.code)
		}
	}
}
