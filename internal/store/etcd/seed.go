package etcd

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/etcdserver/cindex"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/knarr-project/knarr/internal/durable"
)

// seed creates a data folder for a cluster of one member, like a restored snapshot without keys. It
// does nothing if there is a store already.
//
// etcd could do this itself, but then the entry that makes the member a voter stays in the log for
// the first thousands of writes. A raft that is asked to campaign while it replays that entry
// panics. With the voter in the snapshot, a member can campaign from the first moment of every
// start.
func seed(cfg config.ServerConfig) error {
	member := filepath.Join(cfg.DataDir, "member")
	if fileutil.Exist(member) {
		return nil
	}
	// Create it under another name and rename it, so that a crash leaves no half of it.
	aside := cfg
	aside.DataDir = filepath.Join(cfg.DataDir, "new")
	if err := os.RemoveAll(aside.DataDir); err != nil {
		return err
	}
	if err := fileutil.CreateDirAll(cfg.Logger, aside.SnapDir()); err != nil {
		return err
	}
	if err := writeSeed(aside); err != nil {
		return fmt.Errorf("make a new data folder: %w", err)
	}
	if err := os.Rename(filepath.Join(aside.DataDir, "member"), member); err != nil {
		return err
	}
	if err := os.Remove(aside.DataDir); err != nil {
		return err
	}
	return durable.SyncFolder(cfg.DataDir)
}

func writeSeed(cfg config.ServerConfig) error {
	const index, term = 1, 1
	cluster, err := membership.NewClusterFromURLsMap(cfg.Logger, cfg.InitialClusterToken, cfg.InitialPeerURLsMap)
	if err != nil {
		return err
	}
	m := cluster.MemberByName(cfg.Name)
	voters := raftpb.ConfState{Voters: []uint64{uint64(m.ID)}}

	bcfg := backend.DefaultBackendConfig(cfg.Logger)
	bcfg.Path, bcfg.UnsafeNoFsync, bcfg.BackendFreelistType = cfg.BackendPath(), cfg.UnsafeNoFsync, cfg.BackendFreelistType
	be := backend.New(bcfg)
	defer be.Close()
	schema.CreateMetaBucket(be.BatchTx())
	members := schema.NewMembershipBackend(cfg.Logger, be)
	members.MustCreateBackendBuckets()
	cluster.SetBackend(members)
	cluster.AddMember(m, membership.ApplyBoth)
	tx := be.BatchTx()
	tx.LockOutsideApply()
	schema.MustUnsafeSaveConfStateToBackend(cfg.Logger, tx, &voters)
	tx.Unlock()
	cindex.UpdateConsistentIndexForce(tx, index, term)

	meta, err := (&etcdserverpb.Metadata{NodeID: uint64(m.ID), ClusterID: uint64(cluster.ID())}).Marshal()
	if err != nil {
		return err
	}
	entry, err := voterEntry(m)
	if err != nil {
		return err
	}
	w, err := wal.Create(cfg.Logger, cfg.WALDir(), meta)
	if err != nil {
		return err
	}
	defer w.Close()
	if cfg.UnsafeNoFsync {
		w.SetUnsafeNoFsync()
	}
	if err := w.Save(raftpb.HardState{Term: term, Vote: uint64(m.ID), Commit: index}, []raftpb.Entry{entry}); err != nil {
		return err
	}
	err = snap.New(cfg.Logger, cfg.SnapDir()).SaveSnap(raftpb.Snapshot{
		Data:     etcdserver.GetMembershipInfoInV2Format(cfg.Logger, cluster),
		Metadata: raftpb.SnapshotMetadata{Index: index, Term: term, ConfState: voters},
	})
	if err != nil {
		return err
	}
	return w.SaveSnapshot(walpb.Snapshot{Index: index, Term: term, ConfState: &voters})
}

func voterEntry(m *membership.Member) (raftpb.Entry, error) {
	about, err := json.Marshal(m)
	if err != nil {
		return raftpb.Entry{}, err
	}
	change := raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: uint64(m.ID), Context: about}
	data, err := change.Marshal()
	if err != nil {
		return raftpb.Entry{}, err
	}
	return raftpb.Entry{Type: raftpb.EntryConfChange, Term: 1, Index: 1, Data: data}, nil
}
