package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// TestEvictionChecksItsResourceVersion: a precondition on the resourceVersion refuses the
// eviction of a later state.
func TestEvictionChecksItsResourceVersion(t *testing.T) {
	s := newTestServer(t)
	const pods = "/api/v1/namespaces/default/pods"
	if code, _, answer := do(t, s, "POST", pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, "Content-Type", wire.MediaJSON); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	evict := func(version string) int {
		code, _, _ := do(t, s, "POST", pods+"/a/eviction", fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"},"deleteOptions":{"preconditions":{"resourceVersion":%q}}}`, version), "Content-Type", wire.MediaJSON)
		return code
	}
	if code := evict("1"); code != http.StatusConflict {
		t.Errorf("another version: %d", code)
	}
	_, _, answer := do(t, s, "GET", pods+"/a", "")
	var version string
	if _, err := fmt.Sscanf(answer[strings.Index(answer, `"resourceVersion":"`):], `"resourceVersion":%q`, &version); err != nil {
		t.Fatal(err, answer)
	}
	if code := evict(version); code != http.StatusCreated {
		t.Errorf("the pod's own version: %d", code)
	}
}
