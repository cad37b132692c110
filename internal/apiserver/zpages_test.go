package apiserver

import (
	"net/http"
	"strings"
	"testing"
)

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
