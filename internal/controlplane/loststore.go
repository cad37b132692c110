package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/snapshots"
)

// refuseLostStore returns an error if the data folder has had a store, which is gone. Nodes would
// trust an empty cluster with the old keys, and end all their pods.
func refuseLostStore(dataDir string) error {
	written, err := snapshots.ReadWritten(dataDir)
	if err != nil {
		return fmt.Errorf("version of the store: %w", err)
	}
	if written == nil {
		return nil
	}
	found := fmt.Sprintf("knarr %s has written it since %s", written.By, written.Since.UTC().Format(time.RFC3339))
	var keys []string
	for _, name := range []string{"ca.key", "sa.key", "rotation.json"} {
		if _, err := os.Stat(filepath.Join(dataDir, "pki", name)); err == nil {
			keys = append(keys, name)
		}
	}
	if len(keys) > 0 {
		found += "; the cluster's keys are in pki (" + strings.Join(keys, ", ") + ")"
	}
	restore := "`knarr snapshot restore FILE`"
	folder := filepath.Join(dataDir, "snapshots")
	if entries, err := os.ReadDir(folder); err == nil && len(entries) > 0 {
		restore = fmt.Sprintf("`knarr snapshot restore --at newest %s`", folder)
	}
	return fmt.Errorf("the store in %s is lost (%s), and an empty cluster with its keys would make the nodes end their pods. "+
		"Ways back: %s brings back the objects; `knarr server --join URL` if other servers of the cluster run; "+
		"put the folder etcd back if you have moved it. To begin an empty cluster with the same keys, delete %s; with new keys, run `knarr purge` first",
		filepath.Join(dataDir, "etcd"), found, restore, filepath.Join(dataDir, snapshots.VersionFile))
}
