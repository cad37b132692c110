package apiserver

import (
	"crypto/tls"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCORS: the answers are those of upstream's kube-apiserver v1.36.3.
func TestCORS(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.Front.Origins = []*regexp.Regexp{regexp.MustCompile(`//example\.com(:|$)`)} })
	allowed := []string{"Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"}
	for name, tc := range map[string]struct {
		method, origin string
		code           int
		headers        []string
	}{
		"no origin":         {http.MethodGet, "", http.StatusOK, nil},
		"an allowed origin": {http.MethodGet, "https://example.com", http.StatusOK, allowed},
		"another origin":    {http.MethodGet, "https://example.com.net", http.StatusOK, nil},
		"a preflight request of an allowed origin": {http.MethodOptions, "http://example.com:8080", http.StatusNoContent, allowed},
		"a preflight request of another origin":    {http.MethodOptions, "http://example.net", http.StatusMethodNotAllowed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(tc.method, "/api/v1/nodes", nil)
			if tc.origin != "" {
				r.Header.Set("Origin", tc.origin)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			var got []string
			for _, header := range slices.Sorted(maps.Keys(w.Header())) {
				if strings.HasPrefix(header, "Access-Control-") {
					got = append(got, header)
				}
			}
			if w.Code != tc.code || !slices.Equal(got, tc.headers) || len(got) > 0 && w.Header().Get("Access-Control-Allow-Origin") != tc.origin {
				t.Errorf("%d, %v", w.Code, w.Header())
			}
		})
	}
}

func TestStrictTransportSecurity(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.Front.StrictTransport = "max-age=5; preload" })
	for _, secure := range []bool{true, false} {
		r := httptest.NewRequest(http.MethodGet, "/api", nil)
		want := ""
		if secure {
			r.TLS, want = &tls.ConnectionState{}, "max-age=5; preload"
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if got := w.Header().Get("Strict-Transport-Security"); got != want {
			t.Errorf("HTTPS %v: %q", secure, got)
		}
	}
}
