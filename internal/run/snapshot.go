package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// SaveSnapshot writes a snapshot of the store to path. It comes from the server if one runs on the
// data folder or is configured by a kubeconfig; otherwise from the folder itself.
func SaveSnapshot(ctx context.Context, cfg *config.Config, path string, log *slog.Logger) (etcd.SnapshotInfo, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return etcd.SnapshotInfo{}, fmt.Errorf("snapshot: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-")
	if err != nil {
		return etcd.SnapshotInfo{}, fmt.Errorf("snapshot: %w", err)
	}
	defer os.Remove(f.Name()) // fails after a success, when the file has its final name
	defer f.Close()
	if cfg.Kubeconfig != "" {
		err = fetchSnapshot(ctx, cfg.Kubeconfig, f)
	} else if err = copyStore(ctx, cfg, f, log); errors.Is(err, errLocked) {
		err = fetchSnapshot(ctx, cfg.AdminKubeconfig(), f)
	}
	if err != nil {
		return etcd.SnapshotInfo{}, fmt.Errorf("snapshot: %w", err)
	}
	info, err := etcd.InspectSnapshot(f.Name())
	if err != nil {
		return info, err
	}
	return info, durable.Publish(f, path)
}

// copyStore takes the snapshot from the data folder. It starts only the engine, so that the content
// of its log is included.
func copyStore(ctx context.Context, cfg *config.Config, w io.Writer, log *slog.Logger) error {
	dir := cfg.Path("etcd")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no store in %s to save", cfg.DataDir)
	} else if err != nil {
		return err
	}
	l, err := lock(cfg.DataDir)
	if err != nil {
		return err
	}
	defer l.Close()
	db, err := etcd.Open(ctx, etcd.Options{DataDir: dir, Log: log})
	if err != nil {
		return err
	}
	return errors.Join(db.Snapshot(ctx, w), db.Close())
}

func fetchSnapshot(ctx context.Context, kubeconfig string, w io.Writer) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.Timeout = 0
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(cfg.Host, "/")+controlplane.SnapshotPath, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s answers %s: %s", cfg.Host, resp.Status, strings.TrimSpace(string(text)))
	}
	_, err = io.Copy(w, resp.Body)
	return err
}

// RestoreSnapshot restores a snapshot into the data folder, whose server must not run. If there is
// a store already, it returns an error, or with replace moves the store aside to kept.
func RestoreSnapshot(cfg *config.Config, path string, bump uint64, replace bool, now time.Time, log *slog.Logger) (kept string, err error) {
	if err := isFile(path); err != nil {
		return "", fmt.Errorf("restore: %w", err)
	}
	l, err := lock(cfg.DataDir)
	if err != nil {
		return "", fmt.Errorf("restore: %w", explainLock(err, cfg.DataDir))
	}
	defer l.Close()
	opts := etcd.RestoreOptions{Path: path, DataDir: cfg.Path("etcd"), Bump: bump, Log: log}
	if _, err := os.Stat(opts.DataDir); err == nil {
		if !replace {
			return "", fmt.Errorf("restore: there is a store in %s already: --force puts it aside", opts.DataDir)
		}
		opts.KeepAs = opts.DataDir + ".before-" + now.UTC().Format(snapshotTime)
	}
	return opts.KeepAs, etcd.Restore(opts)
}

// isFile returns an error if path is not an existing file.
func isFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no file %s", path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder, not a snapshot: `knarr snapshot ls %s` lists those in it", path, path)
	}
	return nil
}

// snapshotTime is the time format in file names, UTC.
const snapshotTime = "20060102T150405Z"

// NewSnapshotPath is the default path of a new snapshot.
func NewSnapshotPath(cfg *config.Config, now time.Time) string {
	return filepath.Join(SnapshotFolder(cfg), "knarr-"+now.UTC().Format(snapshotTime)+".db")
}

// SnapshotFolder is the default folder of snapshots.
func SnapshotFolder(cfg *config.Config) string { return cfg.Path("snapshots") }
