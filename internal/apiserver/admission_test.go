package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/knarr-project/knarr/internal/admission"
)

func TestAdmissionCannotMoveAnObjectToAnotherNamespace(t *testing.T) {
	s, m := newRecordingServer(t)
	const path = "/api/v1/namespaces/default/configmaps"
	move := func(to string) func(*admission.Attributes) {
		return func(a *admission.Attributes) {
			if acc, err := meta.Accessor(a.Object); err == nil {
				acc.SetNamespace(to)
			}
		}
	}
	for _, to := range []struct {
		namespace    string
		create, edit int
	}{{"other", http.StatusBadRequest, http.StatusBadRequest}, {"", http.StatusCreated, http.StatusOK}} {
		m.change = move(to.namespace)
		if code, _, body := do(t, s, "POST", path, `{"metadata":{"name":"x"}}`); code != to.create {
			t.Errorf("create in %q: %d %s", to.namespace, code, body)
		}
		m.change = nil
		do(t, s, "POST", path, `{"metadata":{"name":"x"}}`)
		m.change = move(to.namespace)
		if code, _, body := do(t, s, "PUT", path+"/x", `{"metadata":{"name":"x"},"data":{"a":"`+to.namespace+`"}}`); code != to.edit {
			t.Errorf("update to %q: %d %s", to.namespace, code, body)
		}
		m.change = nil
		do(t, s, "DELETE", path+"/x", "")
	}
	if code, _, body := do(t, s, "GET", "/api/v1/configmaps", ""); code != 200 || strings.Contains(body, `"name"`) {
		t.Errorf("managed fields after admission: %s", body)
	}
}

func TestAdmissionSeesTheNamesOfThePath(t *testing.T) {
	s, m := newRecordingServer(t)
	const namespaced = "/api/v1/namespaces/default/"
	do(t, s, "POST", namespaced+"configmaps", `{"metadata":{"name":"x"}}`)
	for _, tc := range []struct{ method, path, body, want string }{
		{"DELETE", "configmaps", "", `DELETE configmaps/ "" in -`},
		{"GET", "pods/https:x:80/proxy/y", "", `CONNECT pods/proxy "https:x:80" in -`},
		{"POST", "pods/x/binding", `{"metadata":{"name":"x"},"target":{"name":"n"}}`, `CREATE pods/binding "x" in default`},
		{"POST", "bindings", `{"metadata":{"name":"x"},"target":{"name":"n"}}`, `CREATE bindings/ "x" in default`},
		{"POST", "serviceaccounts/x/token", `{}`, `CREATE serviceaccounts/token "x" in default`},
	} {
		m.shown = nil
		code, _, body := do(t, s, tc.method, namespaced+tc.path, tc.body)
		if len(m.shown) != 1 || m.shown[0] != tc.want {
			t.Errorf("%s %s shows %q: %d %s", tc.method, tc.path, m.shown, code, body)
		}
	}
}
