package run

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/cri"
)

// StopPods stops the pods that a stopped knarr has left running, and returns their number. Their
// sandboxes stay, so that the next start knows that they have ended and starts them again.
func StopPods(ctx context.Context, r *clusters.Record, log *slog.Logger) (int, error) {
	f, err := lock(r.DataDir)
	if err != nil {
		return 0, explainLock(err, r.DataDir)
	}
	defer f.Close()
	n, err := cri.StopPods(ctx, cri.Config{DataDir: r.DataDir, RunDir: r.RunDir, Logger: log})
	if err != nil {
		return n, fmt.Errorf("stop pods: %w", err)
	}
	return n, nil
}

// Containers returns the ids of the containers, including pods' sandboxes, of which the included
// runtime has a state.
func Containers(runDir string) []string {
	if runDir == "" {
		return nil
	}
	found, _ := filepath.Glob(filepath.Join(runDir, "runc", "*", "*"))
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}
