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
)

func TestHealthTellsOfKeyManagementServices(t *testing.T) {
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
