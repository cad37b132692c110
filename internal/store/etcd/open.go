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
	// memberURL names the only member; nothing listens there. The member's id is made from it.
	memberURL = "http://127.0.0.1:2380"

	// quota is what etcd calls the backend quota: the database may grow to this many bytes.
	quota = 8 << 30

	// maxRequestBytes is upstream's limit, so that what is stored here can be given back to upstream's etcd.
	maxRequestBytes = 1536 * 1024

	// tick is raft's clock. A single member has nobody to send heartbeats to and campaigns at once when it starts, so
	// a slow clock costs nothing, and wakes an idle process twice a second instead of ten times.
	tick = 500 * time.Millisecond

	// snapshotCount is after how many entries etcd puts a snapshot of its membership on disk and forgets log before it.
	snapshotCount = 750

	// batchInterval is how long a write that is in the log, and so on disk, may wait until it is put into the database's file with others. Etcd
	// looks whether there are any each time, and syncs the file twice when there are: a tenth of a second, its default, is for servers that read the file
	// behind their own buffer. What is in the log only is read again from it at the next start.
	batchInterval = time.Second

	// walSegment is how much of the write-ahead log is preallocated at a time; two segments are.
	walSegment = 16 << 20
)

// Options say how the embedded engine runs. The zero value of each field but DataDir is the right one for production.
type Options struct {
	// DataDir is etcd's data folder; made if missing.
	DataDir string
	// UnsafeNoSync leaves writes in the page cache: a power failure or a crash of the kernel loses acknowledged writes (a crash
	// of the process does not). For tests.
	UnsafeNoSync bool
	// Log gets etcd's warnings and errors; nil is slog.Default().
	Log *slog.Logger
}

// Engine is the embedded engine.
type Engine struct {
	server *etcdserver.EtcdServer

	// told is the newest revision that anybody outside has been told of.
	told atomic.Int64

	path    string       // of the database's file
	touched atomic.Int64 // bytes of it, about, since its pages were given back
	mapping sync.Mutex   // is held while its pages are given back, and while it is mapped anew

	// mu is held for reading by what reads the backend, for writing by Close, since reading a closed backend panics.
	mu     sync.RWMutex
	closed bool
}

var _ store.Store = (*Engine)(nil)

var setWALSegment = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegment })

// Open starts the engine on the data folder and returns when it answers: what was acknowledged before the last stop, clean or not, can be read.
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
	e.tell(server.KV().Rev())
	e.forgetPages() // etcd has the whole file read ahead
	return e, nil
}

// lead makes a single member leader now instead of after an election timeout, and returns when all of its log has been applied.
func lead(ctx context.Context, server *etcdserver.EtcdServer) error {
	// MsgTimeoutNow is raft's own "start an election now", otherwise sent by a leader that steps down. It is sent when the
	// replay of the log pauses, and again if that was too early.
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	var applied uint64
	for server.Leader() == 0 {
		select {
		case <-poll.C:
		case <-server.StopNotify():
			return errors.New("the server stopped while it started")
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

// barrier returns when everything that the log held at start is applied. It proposes a transaction that changes nothing and waits for it to be applied
// like any write. Asking for a read index does not do: a single leader answers with the commit index that its last run has left, which may be
// behind what that run has acknowledged, since commit indexes are not synced to disk.
func barrier(ctx context.Context, server *etcdserver.EtcdServer) error {
	never := &pb.Compare{Result: pb.Compare_LESS, Target: pb.Compare_VERSION, Key: []byte{0}, TargetUnion: &pb.Compare_Version{Version: 0}}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte{0}}}}
	for {
		_, err := server.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{never}, Success: []*pb.RequestOp{put}})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, etcderrors.ErrTooManyRequests), errors.Is(err, etcderrors.ErrLeaderChanged), errors.Is(err, raft.ErrProposalDropped):
			// It is about to apply the log, or has just become the leader.
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
		ElectionTicks:              2, // the least that raft takes
		InitialElectionTickAdvance: true,
		PreVote:                    true,
		BootstrapTimeout:           10 * time.Second,

		// A restart replays the log since the last snapshot on disk.
		SnapshotCount: snapshotCount,
		// So many entries etcd keeps in memory for followers to catch up. There are none, but a raft that is asked to campaign
		// panics if entries that it has not noted as applied are gone from memory, so keep what a restart may have to replay.
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
		BcryptCost:                  10, // of etcd's own users, which are not used
		WarningApplyDuration:        time.Second,
		WarningUnaryRequestDuration: time.Second,
		V2Deprecation:               config.V2DeprDefault,
		Logger:                      lg,
		ServerFeatureGate:           features.NewDefaultServerFeatureGate(memberName, lg),
		Metrics:                     "basic",
	}, nil
}

// Close stops the engine; all that was acknowledged is on disk before and after.
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

// read guards an access to the backend; the caller calls done when err is nil.
func (e *Engine) read() (done func(), err error) {
	e.mu.RLock()
	if e.closed {
		e.mu.RUnlock()
		return nil, store.ErrUnavailable
	}
	return e.mu.RUnlock, nil
}
