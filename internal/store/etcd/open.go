package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/knarr-project/knarr/internal/store"
)

const (
	memberName = "knarr"
	// memberURL identifies the only member, whose id is derived from it. There is no listener.
	memberURL = "http://127.0.0.1:2380"

	// quota is etcd's backend quota, the largest size of the database in bytes.
	quota = 8 << 30

	// maxRequestBytes is upstream's limit, so that the data can be moved back to upstream's etcd.
	maxRequestBytes = 1536 * 1024

	// tick is raft's clock. A single member sends no heartbeats and campaigns at once when it
	// starts, so a slow clock costs nothing. It wakes an idle process twice a second instead of ten
	// times.
	tick = 500 * time.Millisecond

	// snapshotCount is the number of entries after which etcd stores a snapshot of its membership
	// and drops the log before it.
	snapshotCount = 750

	// batchInterval is the time for which a write may stay in the log, on disk, before it is
	// written to the database file with others. etcd checks for such writes at this interval, and
	// syncs the file twice if there are any. Its default of 100 ms suits servers whose file other
	// processes read. A restart reads writes that are only in the log again.
	batchInterval = time.Second

	// walSegment is the size of a preallocated segment of the write-ahead log; there are two.
	walSegment = 16 << 20
)

// Options configures the embedded engine. The zero value of every field except DataDir is right for
// production.
type Options struct {
	// DataDir is etcd's data folder, created if missing.
	DataDir string
	// UnsafeNoSync leaves writes in the page cache: a power failure or a kernel crash loses
	// acknowledged writes, a crash of the process does not. It is for tests.
	UnsafeNoSync bool
	// Log receives etcd's warnings and errors; nil is slog.Default().
	Log *slog.Logger
}

// Engine is the embedded engine.
type Engine struct {
	server *etcdserver.EtcdServer

	// observed is the newest revision that any caller has been told of.
	observed atomic.Int64

	path    string       // of the database file
	touched atomic.Int64 // approximate bytes read and written since the file's pages were released
	mapping sync.Mutex   // held while the file's pages are released, and while it is mapped anew

	// mu is held for reading by readers of the backend, and for writing by Close, since reading a
	// closed backend panics.
	mu     sync.RWMutex
	closed bool
}

var _ store.Store = (*Engine)(nil)

var setWALSegment = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegment })

// Open starts the engine on the data folder and returns when it answers. All writes acknowledged
// before the last stop can then be read, even after a crash.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	if opts.DataDir == "" {
		return nil, errors.New("open store: no data folder given")
	}
	cfg, err := serverConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", opts.DataDir, err)
	}
	setWALSegment()
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("open store in %s: %w", opts.DataDir, err)
	}
	if err := seed(cfg); err != nil {
		return nil, fmt.Errorf("open store in %s: %w", opts.DataDir, err)
	}
	server, err := etcdserver.NewServer(cfg)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", opts.DataDir, err)
	}
	server.Start()
	if err := lead(ctx, server); err != nil {
		server.HardStop()
		return nil, fmt.Errorf("open store in %s: %w", opts.DataDir, err)
	}
	e := &Engine{server: server, path: cfg.BackendPath()}
	e.observe(server.KV().Rev())
	e.forgetPages() // etcd has made the kernel read the whole file
	return e, nil
}

// lead makes a single member leader without an election timeout, and returns when its whole log has
// been applied.
func lead(ctx context.Context, server *etcdserver.EtcdServer) error {
	// MsgTimeoutNow is raft's request to start an election now, usually sent by a leader that steps
	// down. Send it when the replay of the log pauses, and again if that was too early.
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	var applied uint64
	for server.Leader() == 0 {
		select {
		case <-poll.C:
		case <-server.StopNotify():
			return errors.New("the server stopped during its start")
		case <-ctx.Done():
			return ctx.Err()
		}
		if now := server.AppliedIndex(); now != applied {
			applied = now
			continue
		}
		id := uint64(server.MemberID())
		if err := server.Process(ctx, raftpb.Message{Type: raftpb.MsgTimeoutNow, From: id, To: id}); err != nil {
			return fmt.Errorf("campaign: %w", err)
		}
	}
	return barrier(ctx, server)
}

// barrier returns when all entries that the log held at the start are applied. It proposes a
// transaction that changes nothing and waits until it is applied. A read index would not be enough:
// a single leader answers with the commit index of its last run. That index is not synced to disk,
// so it may be behind the writes acknowledged in that run.
func barrier(ctx context.Context, server *etcdserver.EtcdServer) error {
	never := &pb.Compare{Result: pb.Compare_LESS, Target: pb.Compare_VERSION, Key: []byte{0}, TargetUnion: &pb.Compare_Version{Version: 0}}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte{0}}}}
	for {
		_, err := server.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{never}, Success: []*pb.RequestOp{put}})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, etcderrors.ErrTooManyRequests), errors.Is(err, etcderrors.ErrLeaderChanged), errors.Is(err, raft.ErrProposalDropped):
			// The server is about to apply the log, or has just become the leader.
		default:
			return fmt.Errorf("apply the log: %w", err)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func serverConfig(opts Options) (config.ServerConfig, error) {
	dir, err := filepath.Abs(opts.DataDir)
	if err != nil {
		return config.ServerConfig{}, err
	}
	peers, err := types.NewURLs([]string{memberURL})
	if err != nil {
		return config.ServerConfig{}, err
	}
	lg := zapToSlog(opts.Log)
	return config.ServerConfig{
		Name:                memberName,
		DataDir:             dir,
		ClientURLs:          types.URLs{url.URL{Scheme: "http", Host: "127.0.0.1:2379"}},
		PeerURLs:            peers,
		InitialPeerURLsMap:  types.URLsMap{memberName: peers},
		InitialClusterToken: memberName,
		NewCluster:          true,

		TickMs:                     uint(tick.Milliseconds()),
		ElectionTicks:              2, // raft's minimum
		InitialElectionTickAdvance: true,
		PreVote:                    true,
		BootstrapTimeout:           10 * time.Second,

		// A restart replays the log since the last snapshot on disk.
		SnapshotCount: snapshotCount,
		// The number of entries that etcd keeps in memory for followers. There are none, but raft
		// panics when asked to campaign if entries not yet recorded as applied have left memory. So
		// keep all that a restart may have to replay.
		SnapshotCatchUpEntries: 2 * snapshotCount,
		MaxSnapFiles:           2,
		MaxWALFiles:            2,

		QuotaBackendBytes:    quota,
		BackendFreelistType:  bolt.FreelistMapType,
		BackendBatchInterval: batchInterval,
		BackendBatchLimit:    2000,
		UnsafeNoFsync:        opts.UnsafeNoSync,

		CompactionBatchLimit:    1000,
		CompactionSleepInterval: 10 * time.Millisecond,

		MaxTxnOps:                   1024,
		MaxRequestBytes:             maxRequestBytes,
		StrictReconfigCheck:         true,
		BcryptCost:                  10, // for etcd's own users, which are not used
		WarningApplyDuration:        time.Second,
		WarningUnaryRequestDuration: time.Second,
		V2Deprecation:               config.V2DeprDefault,
		Logger:                      lg,
		ServerFeatureGate:           features.NewDefaultServerFeatureGate(memberName, lg),
		Metrics:                     "basic",
	}, nil
}

// Close stops the engine. All acknowledged writes are on disk.
func (e *Engine) Close() error {
	e.mu.Lock()
	was := e.closed
	e.closed = true
	e.mu.Unlock()
	if !was {
		e.server.HardStop()
	}
	return nil
}

// read guards an access to the backend. If err is nil, the caller must call done.
func (e *Engine) read() (done func(), err error) {
	e.mu.RLock()
	if e.closed {
		e.mu.RUnlock()
		return nil, store.ErrUnavailable
	}
	return e.mu.RUnlock, nil
}
