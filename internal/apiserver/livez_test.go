package apiserver

import (
	"net/http"
	"testing"
	"time"
)

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
