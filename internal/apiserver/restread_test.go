package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// TestExportIsRefused: until Kubernetes 1.18, an export was an object without the cluster's own
// fields.
func TestExportIsRefused(t *testing.T) {
	s := newTestServer(t)
	if code, _, answer := do(t, s, "POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, "Content-Type", wire.MediaJSON); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	for query, want := range map[string]int{"export=true": http.StatusBadRequest, "export=1": http.StatusBadRequest, "export": http.StatusBadRequest, "export=false": http.StatusOK, "exact=true": http.StatusOK} {
		code, _, answer := do(t, s, "GET", "/api/v1/namespaces/default/configmaps/a?"+query, "")
		if code != want || want == http.StatusBadRequest && !strings.Contains(answer, "the export parameter, deprecated since v1.14, is no longer supported") {
			t.Errorf("%s is answered with %d: %s", query, code, answer)
		}
	}
}
