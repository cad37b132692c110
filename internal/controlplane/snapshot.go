package controlplane

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/knarr-project/knarr/internal/store"
)

// SnapshotPath is where the API server serves a snapshot of its store, to those who may get this
// path (the admin).
const SnapshotPath = "/knarr/snapshot"

// serveSnapshot streams the store. A failure after the first byte breaks the connection off. A
// shared store is not shown: the copy would be of all that others have in it.
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
		// However long it takes; when the client goes away, writing to it fails.
		if err := s.Snapshot(context.WithoutCancel(r.Context()), w); err != nil {
			log.Warn("a snapshot was not finished", "error", err)
			panic(http.ErrAbortHandler)
		}
	})
}
