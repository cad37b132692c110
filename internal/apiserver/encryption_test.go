package apiserver

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/encryption"
	"github.com/knarr-project/knarr/internal/store"
)

func TestHealthChecksKeyManagementServices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	config := "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers:\n" +
		"  - kms: {apiVersion: v2, name: absent, endpoint: 'unix://" + filepath.Join(t.TempDir(), "none") + "', timeout: 10ms}\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, func(c *Config) {
		sealed, err := encryption.Wrap(t.Context(), c.Store, path, false, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		c.Store = sealed
		t.Cleanup(func() { _ = sealed.Close() })
	})
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	for at, want := range map[string]int{"/healthz/kms-providers": http.StatusInternalServerError, "/readyz/kms-providers": http.StatusInternalServerError, "/livez/kms-providers": http.StatusNotFound} {
		resp, body := fetch(t, ts.URL+at)
		if resp.StatusCode != want || want == http.StatusInternalServerError && (!strings.HasPrefix(body, "internal server error: kms-provider-0: ") || !strings.Contains(body, "rpc error")) {
			t.Errorf("%s: %s %s", at, resp.Status, body)
		}
	}
}

// The messages are upstream's. Readable objects are served, and other broken objects have their
// usual errors.
func TestDecryptionErrorsAreExplained(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	config := "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers:\n" +
		"  - aesgcm: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}\n  - identity: {}\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var under store.Store
	s := newTestServer(t, func(c *Config) {
		under = c.Store
		sealed, err := encryption.Wrap(t.Context(), under, path, false, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		c.Store = sealed
		t.Cleanup(func() { _ = sealed.Close() })
	})
	put := func(name, value string) {
		t.Helper()
		if _, err := under.Commit(t.Context(), nil, store.Op{Key: "/registry/secrets/default/" + name, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	const secrets, why = "/api/v1/namespaces/default/secrets", "cipher: message authentication failed"
	put("broken", "k8s:enc:aesgcm:v1:key1:too short to be anything but broken")
	put("other", "no object")
	for _, a := range []answerCase{
		{"a readable object", "POST", secrets, `{"metadata":{"name":"fine"}}`, nil, 201, "fine", "", ""},
		{"an object that cannot be decrypted", "GET", secrets + "/broken", "", nil, 500, `"message":"Internal error occurred: ` + why + `","reason":"InternalError"`, "", ""},
		{"a change of that object", "PUT", secrets + "/broken", `{"metadata":{"name":"broken"}}`, nil, 500, `"message":"Internal error occurred: ` + why + `","reason":"InternalError"`, "", ""},
		{"a list of all objects", "GET", secrets, "", nil, 500, `Internal error occurred: unable to transform key \"/registry/secrets/default/broken\": ` + why, "", ""},
		{"an object that cannot be decoded", "GET", secrets + "/other", "", nil, 500, "", "Internal error occurred", ""},
		{"the readable object", "GET", secrets + "/fine", "", nil, 200, "fine", "", ""},
	} {
		a.check(t, s)
	}
}
