package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/store"
)

const (
	memberName = "knarr"
	// memberURL is the address of an only member, which has no listener.
	memberURL = "http://127.0.0.1:2380"

	// maxRequestBytes is upstream's limit, so that the data can be moved back to upstream's etcd.
	maxRequestBytes = 1536 * 1024

	// tick is raft's clock: a leader sends a heartbeat at each tick. Followers wait for one between
	// electionTicks and twice that, so the first of two followers starts an election within 1.4 s.
	tick, electionTicks = 100 * time.Millisecond, 7
	// An only member has a slower clock, which wakes an idle process twice a second instead of ten
	// times. It keeps that clock until it starts again as one of several. Its heartbeats still come
	// in time for the others. etcd extends leases to one and a half election timeouts.
	slowTick, slowElectionTicks = 500 * time.Millisecond, 2

	// snapshotCount is the number of entries after which etcd stores a snapshot of its membership
	// and drops the log before it.
	snapshotCount = 750
	// catchUpEntries is the number of entries that a member of several keeps in memory for others.
	// A member that is further behind gets a copy of the whole store.
	catchUpEntries = 5000

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
	// Peers lets this engine be one member of several. If nil, it is always the only one.
	Peers *PeerOptions
	// Log receives etcd's warnings and errors; nil is slog.Default().
	Log *slog.Logger
	// Quota is the most bytes that the data may use; 0 is DefaultQuota.
	Quota int64
	// Vital are prefixes of small keys that are written at the quota too, such as heartbeats'.
	Vital []string
	// survivor makes this member the only one (OpenSurvivor).
	survivor bool
	// OnSlowDisk is called when writes have waited long for the disk. May be nil.
	OnSlowDisk func(SlowDisk)
}

// Engine is the embedded engine.
type Engine struct {
	server *etcdserver.EtcdServer
	dir    string
	log    *slog.Logger

	// alone means that this member is the only one and the leader, so that no other process can
	// accept a write. Reads then need no read index.
	alone atomic.Bool

	peers    *PeerOptions
	changing sync.Mutex   // held while the list of members changes
	listener net.Listener // for other members; nil until there are any, guarded by changing
	serving  sync.WaitGroup

	failure *failure
	quorum  quorum
	epoch   epoch
	space   *space
	keeper  *keeper

	slowLooks atomic.Int64 // the keeper's looks that found a slow disk
	// copying is held for reading while a snapshot is taken, for writing while the database file is
	// replaced.
	copying sync.RWMutex

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
	failed := newFailure()
	cfg, err := serverConfig(opts, failed)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", opts.DataDir, err)
	}
	setWALSegment()
	e, err := start(ctx, cfg, opts, failed)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", opts.DataDir, err)
	}
	return e, nil
}

func start(ctx context.Context, cfg config.ServerConfig, opts Options, failed *failure) (*Engine, error) {
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, err
	}
	switch joins := opts.Peers != nil && len(opts.Peers.Join) > 0; {
	case joins && !wal.Exist(cfg.WALDir()):
		if err := markClustered(cfg.DataDir); err != nil {
			return nil, err
		}
		if err := joinExisting(&cfg, opts.Peers); err != nil {
			return nil, err
		}
	default:
		if err := seed(cfg); err != nil {
			return nil, err
		}
	}
	if opts.Peers != nil && opts.Peers.Await != nil {
		if err := opts.Peers.Await(ctx); err != nil {
			return nil, err
		}
	}
	cfg.ForceNewCluster = opts.survivor
	space := limits(opts, &cfg)
	server, err := newServer(cfg, failed)
	if err != nil {
		return nil, err
	}
	e := &Engine{server: server, dir: cfg.DataDir, path: cfg.BackendPath(), peers: opts.Peers, log: opts.Log, failure: failed, space: space}
	if e.log == nil {
		e.log = slog.Default()
	}
	if err := syncFolders(&cfg); err != nil {
		server.Start() // only a started server can be stopped
		return nil, errors.Join(err, e.Close())
	}
	if err := e.begin(ctx, opts.survivor); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.observe(server.KV().Rev())
	e.forgetPages() // etcd has made the kernel read the whole file
	startKeeper(e, opts)
	return e, nil
}

// syncFolders writes the names of the store's folders and files to disk. etcd syncs its files, and
// only some of the folders: after a power failure a new store could be missing.
func syncFolders(cfg *config.ServerConfig) error {
	if cfg.UnsafeNoFsync {
		return nil
	}
	for _, dir := range []string{cfg.WALDir(), cfg.SnapDir(), cfg.MemberDir(), cfg.DataDir, filepath.Dir(cfg.DataDir)} {
		if err := durable.SyncFolder(dir); err != nil {
			return fmt.Errorf("sync the store's folder: %w", err)
		}
	}
	return nil
}

// begin starts the server and waits until it answers. A survivor's log ends with the removal of the
// other members.
func (e *Engine) begin(ctx context.Context, survivor bool) error {
	several := !e.onlyMember() && !survivor
	if several && e.peers == nil {
		e.server.Start() // only a started server can be stopped
		return fmt.Errorf("the store has other members: %s", describeMembers(e.members()))
	}
	e.server.Start()
	if several {
		if err := e.listen(); err != nil {
			return err
		}
	}
	if err := e.lead(ctx, !survivor); err != nil {
		return err
	}
	e.changing.Lock()
	defer e.changing.Unlock()
	if e.checkAlone(ctx); e.alone.Load() {
		return nil
	}
	if err := e.listen(); err != nil {
		return err
	}
	return e.publishURL(ctx)
}

// lead returns when there is a leader and the log of the last run has been applied. An only member
// becomes the leader without an election timeout, if hurry is true. A survivor must not hurry: raft
// panics when asked to campaign while it applies a change of the members.
func (e *Engine) lead(ctx context.Context, hurry bool) error {
	// MsgTimeoutNow is raft's request to start an election now, usually sent by a leader that steps
	// down. Send it when the replay of the log pauses, and again if that was too early.
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	waiting := time.AfterFunc(5*time.Second, func() {
		e.log.Warn("waiting for a majority of the store's members", "members", describeMembers(e.members()))
	})
	defer waiting.Stop()
	var applied uint64
	for e.server.Leader() == 0 {
		select {
		case <-poll.C:
		case <-e.server.StopNotify():
			return fmt.Errorf("the server stopped during its start; was this member removed from %s?", describeMembers(e.members()))
		case <-ctx.Done():
			return ctx.Err()
		}
		if now := e.server.AppliedIndex(); now != applied {
			applied = now
			continue
		}
		if !hurry || !e.onlyMember() {
			continue // an election among several members needs their votes and takes its time
		}
		id := uint64(e.server.MemberID())
		if err := e.server.Process(ctx, raftpb.Message{Type: raftpb.MsgTimeoutNow, From: id, To: id}); err != nil {
			return fmt.Errorf("campaign: %w", err)
		}
	}
	if e.onlyMember() {
		return barrier(ctx, e.server)
	}
	// The leader may change again, or lose its majority.
	for {
		err := e.readIndex(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-poll.C:
		case <-e.server.StopNotify():
			return err
		}
	}
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
		case err == nil, alarmed(err):
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

func serverConfig(opts Options, failed *failure) (config.ServerConfig, error) {
	dir, err := filepath.Abs(opts.DataDir)
	if err != nil {
		return config.ServerConfig{}, err
	}
	peers, err := types.NewURLs([]string{memberURL})
	if err != nil {
		return config.ServerConfig{}, err
	}
	name, catchUp, clock, ticks := memberName, uint64(2*snapshotCount), slowTick, slowElectionTicks
	if isClustered(dir) || opts.Peers != nil && len(opts.Peers.Join) > 0 {
		catchUp, clock, ticks = catchUpEntries, tick, electionTicks
	}
	var info transport.TLSInfo
	if opts.Peers != nil {
		name, info = opts.Peers.Name, opts.Peers.tls()
	}
	lg := failed.watch(zapToSlog(opts.Log))
	gate, err := compareMembers(lg)
	if err != nil {
		return config.ServerConfig{}, err
	}
	return config.ServerConfig{
		Name:                name,
		DataDir:             dir,
		ClientURLs:          types.URLs{url.URL{Scheme: "http", Host: "127.0.0.1:2379"}},
		PeerURLs:            peers,
		PeerTLSInfo:         info,
		InitialPeerURLsMap:  types.URLsMap{name: peers},
		InitialClusterToken: rand.Text(), // no two clusters have the same id
		NewCluster:          true,
		MaxLearners:         1,

		TickMs:                     uint(clock.Milliseconds()),
		ElectionTicks:              ticks,
		InitialElectionTickAdvance: true,
		PreVote:                    true,
		BootstrapTimeout:           10 * time.Second,

		// A restart replays the log since the last snapshot on disk.
		SnapshotCount: snapshotCount,
		// An only member has no followers, but raft panics when asked to campaign if entries not
		// yet recorded as applied have left memory. So keep all that a restart may have to replay.
		SnapshotCatchUpEntries: catchUp,
		MaxSnapFiles:           2,
		MaxWALFiles:            2,

		BackendFreelistType:  bolt.FreelistMapType,
		BackendBatchInterval: batchInterval,
		BackendBatchLimit:    2000,
		UnsafeNoFsync:        opts.UnsafeNoSync,

		CompactionBatchLimit:    1000,
		CompactionSleepInterval: 10 * time.Millisecond,

		MaxTxnOps:                   1024,
		MaxRequestBytes:             maxRequestBytes,
		StrictReconfigCheck:         false, // Remove checks the quorum itself
		BcryptCost:                  10,    // for etcd's own users, which are not used
		WarningApplyDuration:        time.Second,
		WarningUnaryRequestDuration: time.Second,
		V2Deprecation:               config.V2DeprDefault,
		Logger:                      lg,
		ServerFeatureGate:           gate,
		CompactHashCheckTime:        time.Minute,
		Metrics:                     "basic",
	}, nil
}

// joinExisting configures the first start of a member that joins others.
func joinExisting(cfg *config.ServerConfig, p *PeerOptions) error {
	cfg.NewCluster = false
	cfg.InitialPeerURLsMap = types.URLsMap{}
	for _, m := range p.Join {
		name := fmt.Sprintf("%x", m.ID) // names do not matter here, and may be the same
		if m.PeerURL == p.url() {
			name = cfg.Name
		}
		urls, err := types.NewURLs([]string{m.PeerURL})
		if err != nil {
			return fmt.Errorf("address of member %x: %w", m.ID, err)
		}
		cfg.InitialPeerURLsMap[name] = urls
	}
	own, ok := cfg.InitialPeerURLsMap[cfg.Name]
	if !ok {
		return fmt.Errorf("this member's address %s is none of the cluster's: %s", p.url(), describeMembers(p.Join))
	}
	cfg.PeerURLs = own
	return nil
}

func describeMembers(all []Member) string {
	var out []string
	for _, m := range all {
		out = append(out, strings.TrimSpace(m.Name+" "+m.PeerURL))
	}
	return strings.Join(out, ", ")
}

// Close stops the engine. All acknowledged writes are on disk.
func (e *Engine) Close() error {
	if err := e.failure.cause(); err != nil {
		go e.shutOut()
		return nil // parts of etcd wait for ever; the cause was returned to callers
	}
	e.keeper.close()
	e.mu.Lock()
	was := e.closed
	e.closed = true
	e.mu.Unlock()
	if was {
		return nil
	}
	e.changing.Lock()
	if e.listener != nil {
		_ = e.listener.Close()
	}
	e.changing.Unlock()
	e.server.HardStop()
	e.serving.Wait()
	return nil
}

// Done is closed when the engine has stopped, by Close or because of an error.
func (e *Engine) Done() <-chan struct{} { return e.server.StopNotify() }

// read guards an access to the backend. If err is nil, the caller must call done.
func (e *Engine) read() (done func(), err error) {
	if err := e.failure.refusal(); err != nil {
		return nil, err
	}
	e.mu.RLock()
	if e.closed {
		e.mu.RUnlock()
		return nil, store.ErrUnavailable
	}
	return e.mu.RUnlock, nil
}
