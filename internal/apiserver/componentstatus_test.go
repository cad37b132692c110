package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/knarr-project/knarr/internal/network/nettest"
)

// TestComponentStatuses: the answers are those of upstream's API server v1.36.3.
func TestComponentStatuses(t *testing.T) {
	answers := func(code int, text string) string {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }))
		t.Cleanup(s.Close)
		return s.URL + "/healthz"
	}
	nobody := nettest.FreeAddress(t)
	s := newTestServer(t, func(c *Config) {
		c.Components = []Component{{"scheduler", "https://" + nobody + "/healthz"}, {"controller-manager", answers(500, "it is not well")}, {"well", answers(200, "ok")}, {"here", ""}}
	})
	cfg, _ := overHTTP(t, s, "application/json")
	for path, want := range map[string]string{
		"/scheduler":          `"conditions":[{"type":"Healthy","status":"False","message":"Get \"https://` + nobody + `/healthz\": dial tcp ` + nobody + `: connect: connection refused"}]`,
		"/controller-manager": `"conditions":[{"type":"Healthy","status":"False","message":"HTTP probe failed with statuscode: 500"}]`,
		"/well":               `"conditions":[{"type":"Healthy","status":"True","message":"ok\n"}]`,
		"/here":               `"conditions":[{"type":"Healthy","status":"True","message":"ok"}]`,
		"/etcd-0":             `"conditions":[{"type":"Healthy","status":"True","message":"ok"}]`,
		"/nobody":             `"message":"componentstatus \"nobody\" not found","reason":"NotFound","details":{"name":"nobody","kind":"componentstatus"},"code":404`,
		"":                    `"metadata":{"name":"here"}`,
	} {
		if _, body := fetch(t, cfg.Host+"/api/v1/componentstatuses"+path); !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %s", path, body, want)
		}
	}
}

func TestComponentsAreCheckedConcurrentlyAndOnlyTheWantedOnes(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	waits := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		both.Done() // panics if it is called more than twice
		both.Wait()
	}))
	t.Cleanup(waits.Close)
	s := newTestServer(t, func(c *Config) {
		c.Components = []Component{{"a", waits.URL}, {"b", waits.URL}, {"here", ""}}
	})
	cfg, _ := overHTTP(t, s, "application/json")
	path := cfg.Host + "/api/v1/componentstatuses"
	for _, one := range []string{path + "/here", path + "?fieldSelector=metadata.name%3Dhere"} {
		if _, body := fetch(t, one); !strings.Contains(body, `"status":"True"`) || strings.Contains(body, `"name":"a"`) {
			t.Errorf("%s: %s", one, body)
		}
	}
	if _, body := fetch(t, path); strings.Count(body, `"status":"True"`) != 4 {
		t.Error(body)
	}
}
