package zpages

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The answers are those of upstream's API server v1.36.3.
func TestDebugPages(t *testing.T) {
	before := LogLevel.Level()
	t.Cleanup(func() {
		serveVerbosity(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/debug/flags/v", strings.NewReader("0")))
		LogLevel.Set(before)
	})
	mux := http.NewServeMux()
	Debug(mux)
	for name, tc := range map[string]struct {
		method, path, body string
		code               int
		want               string
		level              slog.Level
	}{
		"a level":                 {"PUT", "/debug/flags/v", "4", 200, "successfully set klog.logging.verbosity to 4\n", slog.LevelDebug},
		"none":                    {"PUT", "/debug/flags/v", "x", 400, "strconv.ParseUint: parsing \"x\": invalid syntax\n", slog.LevelInfo},
		"a level below nothing":   {"PUT", "/debug/flags/v", "-1", 400, "strconv.ParseUint: parsing \"-1\": invalid syntax\n", slog.LevelInfo},
		"reading the level":       {"GET", "/debug/flags/v", "", 406, "unsupported http method\n", slog.LevelInfo},
		"the list of profiles":    {"GET", "/debug/pprof/", "", 200, "goroutine", slog.LevelInfo},
		"the list, without slash": {"GET", "/debug/pprof", "", 302, "/debug/pprof/", slog.LevelInfo},
		"an unknown profile":      {"GET", "/debug/pprof/nothing", "", 404, "Unknown profile", slog.LevelInfo},
		"what goroutines are at":  {"GET", "/debug/pprof/goroutine?debug=1", "", 200, "goroutine profile: total", slog.LevelInfo},
		"what can be set":         {"GET", "/debug/flags/", "", 200, "<li>v: how much is logged", slog.LevelInfo},
		"that, without slash":     {"GET", "/debug/flags", "", 200, "<title>flags</title>", slog.LevelInfo},
		"an unknown path":         {"GET", "/debug/flags/w", "", 404, "", slog.LevelInfo},
	} {
		t.Run(name, func(t *testing.T) {
			LogLevel.Set(slog.LevelInfo)
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, strings.NewReader(tc.body)))
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) || LogLevel.Level() != tc.level {
				t.Errorf("%d %q, the level is %v", w.Code, w.Body, LogLevel.Level())
			}
		})
	}
}

func TestMetricsAreReadByAnyMethodAndNotReset(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "waves_total", Help: "Waves."})
	registry.MustRegister(counter)
	counter.Inc()
	for method, want := range map[string]int{"GET": 200, "POST": 200, "PUT": 200, "DELETE": 405} {
		w := httptest.NewRecorder()
		Metrics(registry).ServeHTTP(w, httptest.NewRequest(method, "/metrics", nil))
		if served := strings.Contains(w.Body.String(), "waves_total 1\n"); w.Code != want || served != (want == 200) || served != (w.Header().Get("Process-Start-Time-Unix") != "") {
			t.Errorf("%s: %d %v %s", method, w.Code, w.Header(), w.Body)
		}
	}
}
