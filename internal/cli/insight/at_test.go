package insight

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestTheTimeIsTakenFromKubectlsArguments(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ args, rest, at string }{
		{"get pods", "get pods", ""},
		{"get pods --at 10m -o yaml", "get pods -o yaml", "2026-01-02T02:54:05Z"},
		{"get --at=2026-01-01T00:00:00Z pods", "get pods", "2026-01-01T00:00:00Z"},
		{"exec web -- app --at 10m", "exec web -- app --at 10m", ""},
	} {
		left, at, err := TakeAt(strings.Fields(c.args), now)
		if err != nil || !slices.Equal(left, strings.Fields(c.rest)) || at != c.at {
			t.Errorf("%s: %v %s %v", c.args, left, at, err)
		}
	}
	for _, args := range []string{"get pods --at", "get pods --at soon"} {
		if _, _, err := TakeAt(strings.Fields(args), now); err == nil {
			t.Errorf("%s has no error", args)
		}
	}
	for command, allowed := range map[string]bool{"get": true, "describe": true, "delete": false, "apply": false, "logs": false} {
		if err := CheckAt(command, nil); (err == nil) != allowed {
			t.Errorf("%s: %v", command, err)
		}
	}
	if CheckAt("get", []string{"pods", "-w"}) == nil {
		t.Error("a watch is allowed")
	}
}

func TestAServerThatIgnoresTheTimeIsAnError(t *testing.T) {
	knows := false
	c := &rest.Config{Host: "http://server"}
	At(c, "2026-01-02T02:54:05Z")
	next := c.WrapTransport(traveller(func(r *http.Request) (*http.Response, error) {
		response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}"))}
		if knows {
			response.Header.Set("Knarr-At", r.Header.Get("Knarr-At"))
		}
		return response, nil
	}))
	get := func(path string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := next.RoundTrip(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	for path, resource := range map[string]bool{
		"/api": false, "/api/v1": false, "/apis/apps/v1": false, "/version": false, "/openapi/v3": false,
		"/api/v1/nodes": true, "/apis/apps/v1/namespaces/a/deployments": true,
	} {
		if err := get(path); (err != nil) != resource {
			t.Errorf("%s: %v", path, err)
		}
	}
	knows = true
	if err := get("/api/v1/nodes"); err != nil {
		t.Error(err)
	}
}
