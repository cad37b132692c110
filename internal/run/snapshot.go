package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store/etcd"
	"github.com/knarr-project/knarr/internal/version"
)

// SaveSnapshot takes a snapshot and puts it where target says: a file, a folder or s3://. Without
// target it goes to the folder of snapshots. The store comes from the server if one runs on the
// data folder or is configured by a kubeconfig; otherwise from the folder itself.
func SaveSnapshot(ctx context.Context, cfg *config.Config, target string, now time.Time, log *slog.Logger) (where string, record snapshots.Record, err error) {
	if target == "" {
		if target = cfg.SnapshotDir(); target == "" {
			return "", record, errors.New("snapshot: --snapshot-dir is none: say where to save it")
		}
		target += "/"
	}
	place, name, err := snapshots.Find(target, controlplane.SnapshotS3(cfg))
	if err != nil {
		return "", record, fmt.Errorf("snapshot: %w", err)
	}
	req := snapshots.Request{
		Name: snapshots.PrefixSaved + now.UTC().Format(snapshots.TimeFormat), Now: time.Now, Log: log,
		Server: cfg.NodeName, Version: version.Current().Knarr, WithKeys: cfg.Snapshots.WithKeys,
	}
	if req.WithKeys {
		if cfg.Kubeconfig != "" {
			return "", record, errors.New("snapshot: --snapshot-with-keys needs the server's data folder: run it there, without --kubeconfig")
		}
		if req.Keys, err = snapshots.ClusterKeys(controlplane.SnapshotKeys(cfg)); err != nil {
			return "", record, fmt.Errorf("snapshot: %w", err)
		}
	}
	if cfg.Snapshots.KeyFile != "" {
		if req.Seal, err = snapshots.LoadKeys(cfg.Snapshots.KeyFile); err != nil {
			return "", record, err
		}
	}
	work, err := snapshots.NewWork(workFolder(cfg, place))
	if err != nil {
		return "", record, err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	taken, err := takeFrom(ctx, cfg, work, req)
	if err != nil {
		return "", record, fmt.Errorf("snapshot: %w", err)
	}
	if name != "" {
		taken.Record.Name = name
	}
	if err := place.Put(ctx, taken); err != nil {
		return "", record, fmt.Errorf("snapshot: %w", err)
	}
	return place.At(taken.Record.Name), taken.Record, nil
}

// workFolder is on the file system of a place, if the place is a folder.
func workFolder(cfg *config.Config, place snapshots.Place) string {
	if folder, ok := place.(snapshots.Folder); ok {
		return folder.String()
	}
	if dir := cfg.SnapshotDir(); dir != "" {
		return dir
	}
	return cfg.Path("snapshots")
}

// takeFrom takes the snapshot from the server, or from the folder of a stopped one.
func takeFrom(ctx context.Context, cfg *config.Config, work *snapshots.Work, req snapshots.Request) (*snapshots.Taken, error) {
	fetch := func(kubeconfig string) (*snapshots.Taken, error) {
		req.Stream = func(ctx context.Context, w io.Writer) error { return fetchSnapshot(ctx, kubeconfig, w) }
		return snapshots.Take(ctx, work, req)
	}
	if cfg.Kubeconfig != "" {
		return fetch(cfg.Kubeconfig)
	}
	taken, err := takeStopped(ctx, cfg, work, req)
	if errors.Is(err, errLocked) {
		return fetch(cfg.AdminKubeconfig())
	}
	return taken, err
}

// takeStopped starts only the engine, so that the content of its log is included.
func takeStopped(ctx context.Context, cfg *config.Config, work *snapshots.Work, req snapshots.Request) (*snapshots.Taken, error) {
	dir := cfg.Path("etcd")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no store in %s to save", cfg.DataDir)
	} else if err != nil {
		return nil, err
	}
	l, err := lock(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	opts := etcd.Options{DataDir: dir, Log: req.Log}
	open := func() (*etcd.Engine, error) { return etcd.Open(ctx, opts) }
	if etcd.HasOthers(dir) {
		// The others may be lost, and the member must not be changed in case they are not.
		open = func() (*etcd.Engine, error) { return etcd.OpenSurvivor(ctx, opts, work.Path("survivor")) }
	}
	db, err := open()
	if err != nil {
		return nil, err
	}
	req.Stream = db.Snapshot
	req.Content = func(ctx context.Context, at int64) (snapshots.Content, error) {
		return snapshots.ContentOf(ctx, db, at)
	}
	taken, err := snapshots.Take(ctx, work, req)
	return taken, errors.Join(err, db.Close())
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
