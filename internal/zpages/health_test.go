package zpages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Who reads the answer looks for upstream's words: each name once, in order, nothing but a comma between them.
func TestChecksThatAreNotThereAreNamedOnceAndInOrder(t *testing.T) {
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
