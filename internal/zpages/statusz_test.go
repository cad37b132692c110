package zpages

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The answers are those of upstream's API server v1.36.3.
func TestStatuszAnswersLikeUpstream(t *testing.T) {
	began := time.Date(2026, 11, 22, 6, 9, 8, 0, time.UTC)
	h := Statusz("apiserver", began, func() time.Time { return began.Add(time.Hour + 67*time.Second) }, "/healthz")
	const structured, text = ";v=v1beta1;g=config.k8s.io;as=Statusz", "text/plain; charset=utf-8"
	wantAnswers(t, h, map[string]answer{
		"people":               {"", 200, text, "\nUp  1 hr 01 min 07 sec\n"},
		"any media type":       {"*/*", 200, text, "\nStarted  Sun Nov 22 06:09:08 UTC 2026\n"},
		"JSON":                 {"application/json" + structured, 200, "application/json;g=config.k8s.io;v=v1beta1;as=Statusz", `"startTime": "2026-11-22T06:09:08Z",` + "\n" + `  "uptimeSeconds": 3667,` + "\n" + `  "goVersion": "` + runtime.Version() + `",` + "\n" + `  "binaryVersion": "1.36.3",` + "\n" + `  "emulationVersion": "1.36",`},
		"YAML":                 {"application/yaml" + structured, 200, "application/yaml;g=config.k8s.io;v=v1beta1;as=Statusz", "metadata:\n  name: apiserver\n"},
		"the older version":    {"application/json;v=v1alpha1;g=config.k8s.io;as=Statusz", 200, "application/json;g=config.k8s.io;v=v1alpha1;as=Statusz", `"apiVersion": "config.k8s.io/v1alpha1"`},
		"rather JSON":          {"text/plain;q=0.5, application/json" + structured, 200, "application/json;g=config.k8s.io;v=v1beta1;as=Statusz", `"kind": "Statusz"`},
		"JSON of no version":   {"application/json", 406, "application/json", "only the following media types are accepted: application/json, application/yaml, text/plain"},
		"another kind":         {"application/json;v=v1beta1;g=config.k8s.io;as=Flagz", 406, "application/json", "NotAcceptable"},
		"protobuf":             {"application/vnd.kubernetes.protobuf" + structured, 406, "application/json", "NotAcceptable"},
		"HTML":                 {"text/html", 406, "application/json", "NotAcceptable"},
		"nothing at all (q=0)": {"text/plain;q=0", 406, "application/json", "NotAcceptable"},
	})
}

// answer is a page's answer to an Accept header. want is a part of the body.
type answer struct {
	accept      string
	code        int
	media, want string
}

// wantAnswers checks all answers. Clients of the older version must get a warning.
func wantAnswers(t *testing.T, h http.HandlerFunc, answers map[string]answer) {
	t.Helper()
	for name, tc := range answers {
		t.Run(name, func(t *testing.T) {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept", tc.accept)
			h(w, r)
			if w.Code != tc.code || w.Header().Get("Content-Type") != tc.media || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("%d %s %s", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
			_, kind, _ := strings.Cut(tc.media, ";as=")
			warning := fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`, strings.ToLower(kind))
			if strings.Contains(tc.media, "v1alpha1") != (w.Header().Get("Warning") == warning) {
				t.Errorf("the warning is %q", w.Header().Get("Warning"))
			}
		})
	}
}
