package run

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/knarr-project/knarr/internal/adopt"
	"github.com/knarr-project/knarr/internal/config"
)

// ReleaseKubeadm gives the cluster of a data folder back to kubeadm's control plane. The server
// must not run.
func ReleaseKubeadm(ctx context.Context, cfg *config.Config, o adopt.Release, log *slog.Logger) (adopt.Released, error) {
	if _, err := os.Stat(cfg.Path("etcd")); err != nil {
		return adopt.Released{}, fmt.Errorf("release: %s has no store: %w", cfg.DataDir, err)
	}
	l, err := lock(cfg.DataDir)
	if err != nil {
		return adopt.Released{}, fmt.Errorf("release: %w", explainLock(err, cfg.DataDir))
	}
	defer l.Close()
	o.DataDir = cfg.DataDir
	return adopt.GiveBack(ctx, o, log)
}
