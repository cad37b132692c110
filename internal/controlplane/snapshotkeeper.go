package controlplane

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/version"
)

// keepSnapshots takes snapshots on the configured schedule until ctx ends. An outside etcd gets
// none, because it may contain other data than this cluster's.
func (s *Server) keepSnapshots(ctx context.Context) (wait func() error, err error) {
	when, err := s.cfg.Snapshots.When()
	if err != nil {
		return nil, fmt.Errorf("snapshot-schedule: %w", err)
	}
	if s.cfg.SharesStore() {
		if when != nil && s.cfg.IsGiven("snapshot-schedule") {
			s.log.Warn("--snapshot-schedule has no effect: take snapshots of an outside etcd with etcdctl", "component", "snapshots")
		}
		return nil, nil
	}
	if when == nil {
		return nil, nil
	}
	log := s.log.With("component", "snapshots")
	k := &snapshots.Keeper{
		Schedule: when, Store: s.raw,
		Retention: snapshots.Retention{Keep: s.cfg.Snapshots.Keep, MaxAge: s.cfg.Snapshots.MaxAge.Duration},
		Work:      s.cfg.SnapshotDir(),
		Keys:      func() ([]snapshots.KeyFile, error) { return snapshots.ClusterKeys(SnapshotKeys(s.cfg)) },
		Metrics:   snapshots.NewMetrics(), Clock: s.clock, Log: log,
	}
	if k.Request, err = snapshotRequest(s.cfg, s.raw, log); err != nil {
		return nil, err
	}
	k.Request.Now = s.clock.Now
	if dir := s.cfg.SnapshotDir(); dir != "" {
		k.Own = snapshots.Folder(dir)
	} else {
		k.Work = s.cfg.Path("snapshots")
	}
	if s.cfg.Snapshots.S3.Bucket != "" {
		if k.Shared, err = snapshots.NewS3(SnapshotS3(s.cfg)); err != nil {
			return nil, err
		}
	}
	s.api.Register(k.Metrics.Collectors()...)
	events := client.NewRecorder(s.own(), "knarr-snapshots", s.cfg.NodeName)
	k.Failed = func(err error) {
		events.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "kube-system"}, nil,
			corev1.EventTypeWarning, "SnapshotFailed", "Snapshot", "server %s: %v", s.cfg.NodeName, err)
	}
	return process.Background(func(ctx context.Context) error {
		return process.Alongside(ctx, process.Part(events.Run), k.Run)
	})(ctx)
}

// snapshotRequest is what all snapshots of this server have in common.
func snapshotRequest(cfg *config.Config, db store.Store, log *slog.Logger) (snapshots.Request, error) {
	req := snapshots.Request{
		Stream: func(ctx context.Context, w io.Writer) error { return db.(store.Snapshotter).Snapshot(ctx, w) },
		Content: func(ctx context.Context, at int64) (snapshots.Content, error) {
			return snapshots.ContentOf(ctx, db, at)
		},
		WithKeys: cfg.Snapshots.WithKeys, Server: cfg.NodeName, Version: version.Current().Knarr, Log: log,
	}
	var err error
	if cfg.Snapshots.KeyFile != "" {
		req.Seal, err = snapshots.LoadKeys(cfg.Snapshots.KeyFile)
	}
	return req, err
}

// SnapshotS3 returns the configured bucket.
func SnapshotS3(cfg *config.Config) snapshots.S3Options {
	c := cfg.Snapshots.S3
	return snapshots.S3Options{Endpoint: c.Endpoint, Bucket: c.Bucket, Prefix: c.Prefix, Region: c.Region, Credentials: c.Credentials, CA: c.CA, PathStyle: c.PathStyle}
}

// SnapshotKeys says which keys of the cluster a snapshot can hold.
func SnapshotKeys(cfg *config.Config) snapshots.KeySources {
	accounts := &cfg.APIServer.ServiceAccounts
	sources := snapshots.KeySources{Folder: cfg.Path("pki"), Encryption: cfg.APIServer.EncryptionConfig, Accounts: slices.Clone(accounts.KeyFiles)}
	if sources.Encryption == managedEncryption(cfg) {
		sources.Encryption = "" // it is in the folder
	}
	if accounts.SigningKeyFile != "" {
		sources.Accounts = append(sources.Accounts, accounts.SigningKeyFile)
	}
	return sources
}
