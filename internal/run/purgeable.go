package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/servers"
)

// ErrNotOurs means that a folder does not belong to knarr.
var ErrNotOurs = errors.New("this is not a data folder of knarr")

// Purgeable refuses a folder with content but without traces of knarr, so that a mistyped
// --data-dir cannot delete other files.
func Purgeable(dataDir string) error {
	info, err := os.Stat(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is a file", ErrNotOurs, dataDir)
	}
	entries, err := os.ReadDir(dataDir)
	if err != nil {
		return err
	}
	// Traces of a component that ran alone, of an older knarr, and of an interrupted purge.
	traces := []string{clusters.File, lockFile, "kubeconfig", "etcd", "pki", "containerd", "kubelet", "network", "cni", "bin", "log", "registries", "manifests", "snapshots", "volumes", "version", "programs", "restored", "joined.json", "pki.joining", servers.File, crashFile, lastCrashFile}
	for _, entry := range entries {
		if slices.Contains([]string{clusters.File, lockFile}, entry.Name()) {
			return nil
		}
	}
	for _, entry := range entries {
		if !slices.Contains(traces, entry.Name()) {
			return fmt.Errorf("%w: %s holds %s, and neither %s nor %s; remove it yourself if it is one", ErrNotOurs, dataDir, entry.Name(), clusters.File, lockFile)
		}
	}
	if filepath.Dir(dataDir) == dataDir {
		return fmt.Errorf("%w: %s", ErrNotOurs, dataDir)
	}
	return nil
}
