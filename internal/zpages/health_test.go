package zpages

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Clients parse upstream's text: each name once, in order, separated by a comma alone.
func TestUnknownExcludedChecksAreNamedOnceAndInOrder(t *testing.T) {
	h := &Health{
		Kind: "healthz", Results: NewHealthMetrics(), NotFound: http.NotFound, Failed: func(string, error) {},
		Checks: []Check{{Name: "ping", Run: func(context.Context) error { return nil }}},
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/healthz?verbose&exclude=b&exclude=ping&exclude=a&exclude=b", nil))
	want := "[+]ping excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nhealthz check passed\n"
	if got := recorder.Body.String(); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestChecksAreExcludedByTheirGroup(t *testing.T) {
	fine := func(context.Context) error { return nil }
	h := &Health{Kind: "readyz", Results: NewHealthMetrics(), Failed: func(string, error) {}, Checks: []Check{
		{Name: "etcd", Run: fine}, {Name: "etcd-override-0", Group: "etcd", Run: func(context.Context) error { return errors.New("away") }}, {Name: "ping", Run: fine},
	}}
	for query, want := range map[string]string{
		"exclude=etcd":            "[+]etcd excluded: ok\n[+]etcd-override-0 excluded with etcd: ok\n[+]ping ok\nreadyz check passed\n",
		"exclude=etcd-override-0": "[+]etcd ok\n[+]etcd-override-0 excluded: ok\n[+]ping ok\nreadyz check passed\n",
		"exclude=":                "[+]etcd ok\n[-]etcd-override-0 failed: reason withheld\n[+]ping ok\nwarn: some health checks cannot be excluded: no matches for \"\"\nreadyz check failed\n",
	} {
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/readyz?verbose&"+query, nil))
		if got := recorder.Body.String(); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
}
