package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// Foreign names a copy of a data folder that another etcd has written.
type Foreign struct {
	// DataDir contains the folder member. The export changes it: it must be a copy.
	DataDir string
	// Force makes a cluster of one member out of a member of several, as etcd's
	// --force-new-cluster. The member's log may hold writes that a majority never acknowledged;
	// they are dropped.
	Force bool
	Log   *slog.Logger
}

// Errors of ExportForeign.
var (
	// ErrSeveralMembers means that the data folder belongs to a cluster of several members.
	ErrSeveralMembers = errors.New("the store has several members")
	// ErrUsers means that etcd's own users are enabled, which neither knarr nor kubeadm uses.
	ErrUsers = errors.New("etcd's own authentication is on: turn it off with `etcdctl auth disable`")
)

// electionTimeout limits the wait for a leader. An only member needs a second or two.
const electionTimeout = time.Minute

// ExportForeign applies the log of a foreign data folder and writes a snapshot file of it to path.
// Revisions, leases and the history that is not compacted are kept.
func ExportForeign(ctx context.Context, from Foreign, path string) error {
	if err := exportForeign(ctx, from, path); err != nil {
		return fmt.Errorf("export the store in %s: %w", from.DataDir, err)
	}
	return nil
}

func exportForeign(ctx context.Context, from Foreign, path string) error {
	failed := newFailure()
	cfg, err := serverConfig(Options{DataDir: from.DataDir, UnsafeNoSync: true, Log: from.Log}, failed)
	if err != nil {
		return err
	}
	if !wal.Exist(cfg.WALDir()) || !fileutil.Exist(cfg.BackendPath()) {
		return errors.New("it has no log (member/wal) or no database (member/snap/db): it is no data folder of etcd")
	}
	limits(Options{}, &cfg)
	if err := checkDatabase(cfg.BackendPath()); err != nil {
		return err
	}
	members, err := foreignMembers(cfg.BackendPath())
	if err != nil {
		return err
	}
	if len(members) > 1 && !from.Force {
		return fmt.Errorf("%w: %s", ErrSeveralMembers, describeMembers(members))
	}
	cfg.ForceNewCluster = from.Force
	server, err := newServer(cfg, failed)
	if err != nil {
		return err
	}
	server.Start()
	defer server.HardStop()
	ctx, cancel := context.WithTimeout(ctx, electionTimeout)
	defer cancel()
	if err := awaitLeader(ctx, server); err != nil {
		return err
	}
	if err := barrier(ctx, server); err != nil {
		return err
	}
	if all := server.Cluster().Members(); len(all) > 1 {
		return fmt.Errorf("%w: its log adds members", ErrSeveralMembers)
	}
	if server.AuthStore().IsAuthEnabled() {
		return ErrUsers
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(writeSnapshot(server.Backend(), f), f.Close())
}

// awaitLeader returns when the member has elected itself.
func awaitLeader(ctx context.Context, server *etcdserver.EtcdServer) error {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for server.Leader() == 0 {
		select {
		case <-poll.C:
		case <-server.StopNotify():
			return errors.New("etcd stopped while it applied its log")
		case <-ctx.Done():
			return fmt.Errorf("no leader: does the store have other members? %w", ctx.Err())
		}
	}
	return nil
}

// foreignMembers reads the members that a database knows.
func foreignMembers(path string) (out []Member, err error) {
	defer func() {
		if v := recover(); v != nil { // a damaged page
			err = fmt.Errorf("%s: %v", path, v)
		}
	}()
	err = inDatabase(path, bolt.Options{ReadOnly: true, Timeout: time.Second}, func(tx *bolt.Tx) error {
		all := tx.Bucket(schema.Members.Name())
		if all == nil {
			return fmt.Errorf("%s has no list of members", path)
		}
		return all.ForEach(func(_, value []byte) error {
			var m membership.Member
			if err := json.Unmarshal(value, &m); err != nil {
				return fmt.Errorf("%s: a member: %w", path, err)
			}
			one := Member{ID: uint64(m.ID), Name: m.Name, Learner: m.IsLearner}
			if len(m.PeerURLs) > 0 {
				one.PeerURL = m.PeerURLs[0]
			}
			out = append(out, one)
			return nil
		})
	})
	return out, err
}
