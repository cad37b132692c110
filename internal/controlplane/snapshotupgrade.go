package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/snapshots"
)

// hasStore reports whether the data folder has an embedded store from an earlier run.
func (s *Server) hasStore() bool {
	_, err := os.Stat(s.cfg.Path("etcd", "member"))
	return err == nil
}

// keepBefore keeps a snapshot if another version has written the store, and then notes that this
// one writes it. It runs before anything else reads or writes the open store. existed means that
// the store is from an earlier run.
func (s *Server) keepBefore(ctx context.Context, existed bool) error {
	me, dir := snapshots.CurrentWriter(), s.cfg.DataDir
	written, err := snapshots.ReadWritten(dir)
	if err != nil {
		return fmt.Errorf("version of the store: %w", err)
	}
	now := s.clock.Now().UTC().Truncate(time.Second)
	switch {
	case written != nil && written.By == me:
		return nil
	case !existed, !s.cfg.Snapshots.BeforeUpgrade:
		return s.note(&snapshots.Written{By: me, Since: now})
	}
	next := &snapshots.Written{By: me, Since: now, Before: &snapshots.Writer{Knarr: "unknown"}}
	if written != nil {
		next.Before = &written.By
	}
	name, err := s.takeBefore(ctx, me)
	if err != nil {
		return fmt.Errorf("keep a snapshot before the first start of %s: %w; --snapshot-before-upgrade=false starts without one", me, err)
	}
	next.Snapshot = name
	s.log.Info("kept a snapshot before the first start of this version", "component", "snapshots", "snapshot", name, "version", me.String(), "before", next.Before.String())
	return s.note(next)
}

// note writes the version of the store. An unsynced file could be empty after a power failure, and
// the next start would refuse it.
func (s *Server) note(w *snapshots.Written) error {
	if s.unsynced {
		return w.Write(s.cfg.DataDir, durable.Replace)
	}
	return w.Write(s.cfg.DataDir, durable.WriteFile)
}

// takeBefore keeps a plain snapshot in the data folder.
func (s *Server) takeBefore(ctx context.Context, me snapshots.Writer) (name string, err error) {
	req, err := snapshotRequest(s.cfg, s.raw, s.log)
	if err != nil {
		return "", err
	}
	req.Name, req.Now, req.WithKeys, req.Seal = me.BeforeName(), s.clock.Now, false, nil
	folder := snapshots.Folder(s.cfg.Path("snapshots"))
	work, err := snapshots.NewWork(folder.String())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	taken, err := snapshots.Take(ctx, work, req)
	if err != nil {
		return "", err
	}
	if err := folder.Put(ctx, taken); err != nil {
		return "", err
	}
	return taken.Record.Name, snapshots.PruneBefore(ctx, folder)
}
