package controlplane

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/knarr-project/knarr/internal/store"
)

// SnapshotPath is the path of the API server's snapshots. Access requires authorization for this
// path (the admin has it).
const SnapshotPath = "/knarr/snapshot"

// serveSnapshot streams a snapshot of the store. A failure after the first byte closes the
// connection. It refuses for a shared store, because the copy would contain other clusters' data.
func serveSnapshot(db store.Store, shared bool, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, ok := db.(store.Snapshotter)
		if !ok || r.Method != http.MethodGet {
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		if shared {
			http.Error(w, "a snapshot of an outside etcd contains all of its data, which may be more than this cluster's: take it with etcdctl", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		// There is no time limit. When the client disconnects, writing fails.
		if err := s.Snapshot(context.WithoutCancel(r.Context()), w); err != nil {
			log.Warn("a snapshot was not finished", "error", err)
			panic(http.ErrAbortHandler)
		}
	})
}
