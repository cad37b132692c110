package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/pkg/v3/featuregate"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// compareAtStart is the size of the data up to which a member compares it with the others' before
// it starts. Larger data is compared at the first compaction.
const compareAtStart = 256 << 20

// newServer creates etcd's server from the data folder. Damaged files become an error that names
// them and the way back. etcd itself logs a fatal message, or panics while it reads a page.
func newServer(cfg config.ServerConfig, failed *failure) (*etcdserver.EtcdServer, error) {
	if err := checkMark(cfg.DataDir); err != nil {
		return nil, err
	}
	if err := checkDatabase(cfg.BackendPath()); err != nil {
		return nil, damaged(cfg, err)
	}
	type result struct {
		server *etcdserver.EtcdServer
		err    error
	}
	made, existing := make(chan result, 1), wal.Exist(cfg.WALDir())
	go func() {
		var r result
		defer func() {
			if v := recover(); v != nil {
				r = result{err: damaged(cfg, fmt.Errorf("%v", v))}
			}
			made <- r
		}()
		// A page beyond the end of the file is a fault of memory.
		debug.SetPanicOnFault(true)
		r.server, r.err = etcdserver.NewServer(cfg)
		if r.err != nil && existing {
			r.err = damaged(cfg, r.err)
		}
		if r.err == nil && !cfg.ForceNewCluster && len(r.server.Cluster().Members()) > 1 && r.server.Backend().SizeInUse() < compareAtStart {
			// A comparison with the members that answer. It reads all of the data.
			if err := r.server.CorruptionChecker().InitialCheck(); err != nil {
				r.server.Cleanup()
				r = result{err: damaged(cfg, err)}
			}
		}
	}()
	select {
	case r := <-made:
		return r.server, r.err
	case <-failed.done:
		return nil, damaged(cfg, failed.cause())
	}
}

func damaged(cfg config.ServerConfig, cause error) error {
	for _, other := range []error{fs.ErrPermission, unix.ENOSPC, unix.EROFS, unix.EMFILE, unix.ENOMEM, bolterrors.ErrTimeout} {
		if errors.Is(cause, other) {
			return cause
		}
	}
	if !strings.Contains(cause.Error(), cfg.BackendPath()) {
		cause = fmt.Errorf("database %s, log %s: %w", cfg.BackendPath(), cfg.WALDir(), cause)
	}
	return fmt.Errorf("%w: %w; %s", ErrCorrupt, cause, WayBack(cfg.DataDir))
}

// checkDatabase reads the database's header and all of its pages' headers, as etcd does to find
// the free pages. etcd does it in a goroutine of its own, where a broken page ends the process. A
// missing file is fine.
func checkDatabase(path string) (err error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return fmt.Errorf("%s is empty", path)
	}
	// A page beyond the end of the file is a fault of memory.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s: %v", path, v)
		}
	}()
	header := bolt.Options{ReadOnly: true, Timeout: time.Second}
	err = inDatabase(path, header, func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("%s is cut off: it has %d bytes of %d", path, info.Size(), tx.Size())
		}
		return nil
	})
	if err != nil {
		return err
	}
	pages := header
	pages.PreLoadFreelist = true
	return inDatabase(path, pages, func(*bolt.Tx) error { return nil })
}

// CheckFolder checks the header of a data folder's database, unless a process uses it, and whether
// the member was found corrupt. It returns the size of the database file, 0 if there is none.
func CheckFolder(dir string) (size int64, err error) {
	path := filepath.Join(dir, "member", "snap", "db")
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := checkMark(dir); err != nil {
		return info.Size(), err
	}
	opts := bolt.Options{ReadOnly: true, Timeout: time.Millisecond}
	err = inDatabase(path, opts, func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("%s is cut off: it has %d bytes of %d", path, info.Size(), tx.Size())
		}
		return nil
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = nil
	}
	return info.Size(), err
}

func inDatabase(path string, opts bolt.Options, look func(tx *bolt.Tx) error) error {
	db, err := bolt.Open(path, 0o600, &opts)
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("another process uses %s: %w", path, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer db.Close()
	return db.View(look)
}

// compareMembers turns on etcd's comparison of hashes between members. Each member computes a hash
// at every compaction anyway, and the leader collects those hashes.
//
// etcd's periodic check of all data stays off. It takes the leader's data for right, so it may
// blame a sound follower; and it reads everything.
func compareMembers(lg *zap.Logger) (featuregate.FeatureGate, error) {
	gate := features.NewDefaultServerFeatureGate(memberName, lg)
	mutable, ok := gate.(featuregate.MutableFeatureGate)
	if !ok {
		return gate, nil
	}
	return gate, mutable.SetFromMap(map[string]bool{string(features.CompactHashCheck): true})
}
