package controlplane

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/store"
)

// copied is a store that supports snapshots.
type copied struct {
	store.Store
	store.Snapshotter
}

func TestSnapshotsOfASharedStoreAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		set    func(c *config.Config)
		shared bool
	}{
		"the embedded store":                {func(*config.Config) {}, false},
		"the embedded store, moved":         {func(c *config.Config) { c.StorePrefix = "/b" }, false},
		"an outside store":                  {func(c *config.Config) { c.StoreEndpoints = []string{"http://127.0.0.1:1"} }, true},
		"a prefix of its own in an outside": {func(c *config.Config) { c.StoreEndpoints, c.StorePrefix = []string{"http://127.0.0.1:1"}, "/b" }, true},
	} {
		c := config.Default()
		tt.set(&c)
		if got := c.SharesStore(); got != tt.shared {
			t.Errorf("%s: shared is %v", name, got)
		}
	}
	w := httptest.NewRecorder()
	serveSnapshot(copied{}, true, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, SnapshotPath, nil))
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "etcdctl") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
