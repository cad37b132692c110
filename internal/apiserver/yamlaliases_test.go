package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// TestYAMLAliasesAreLimited: a hundred thousand aliases of a megabyte would exhaust
// the memory, and any user may send a self review.
func TestYAMLAliasesAreLimited(t *testing.T) {
	s := newTestServer(t)
	bomb := func(head string) string {
		return head + "\ntext: &a " + strings.Repeat("x", 1<<20) + "\nlist: [" + strings.Repeat("*a,", 100_000) + "]\n"
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	if code, _, answer := do(t, s, "POST", maps, "metadata: {name: a}\ndata: {a: &a x, b: *a}", "Content-Type", wire.MediaYAML); code != http.StatusCreated || !strings.Contains(answer, `"b":"x"`) {
		t.Fatal(code, answer)
	}
	if code, _, answer := do(t, s, "PATCH", maps+"/a?fieldManager=m&force=true", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: &a z, b: *a}", "Content-Type", "application/apply-patch+yaml"); code != http.StatusOK || !strings.Contains(answer, `"b":"z"`) {
		t.Fatal(code, answer)
	}
	for name, c := range map[string]struct{ method, path, media, body string }{
		"a create":          {"POST", maps, wire.MediaYAML, bomb("metadata: {name: b}")},
		"a review":          {"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", wire.MediaYAML, bomb("spec: {}")},
		"options of delete": {"DELETE", maps + "/a", wire.MediaYAML, bomb("kind: DeleteOptions")},
		"an apply":          {"PATCH", maps + "/a?fieldManager=m", "application/apply-patch+yaml", bomb("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}")},
	} {
		if code, _, answer := do(t, s, c.method, c.path, c.body, "Content-Type", c.media); code != http.StatusBadRequest || !strings.Contains(answer, "document contains excessive aliasing: its aliases stand for more than 3145728 bytes") {
			t.Errorf("%s: %d %.300s", name, code, answer)
		}
	}
}
