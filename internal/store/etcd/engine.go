package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/knarr-project/knarr/internal/store"
)

// Why reads are linearizable. A member of several asks raft for a read index: the leader confirms
// with a majority that it still leads, and the member waits until it has applied all that was
// committed before.
//
// An only member needs no request to raft. An entry is committed when it is on disk in the member's
// own log, and only applying committed entries changes the map. A writer gets its answer after its
// entry was applied. So a read sees everything that was acknowledged before it began, and
// everything it sees is on disk. Open waits until the log of the last run is applied. AddLearner
// ends this shortcut before it proposes another member, and checkAlone begins it when this member
// is the only one and leads.

// current waits until a read at the revision sees what it must: everything committed before if the
// revision is 0, else that revision.
func (e *Engine) current(ctx context.Context, revision int64) error {
	if e.alone.Load() || revision > 0 && revision <= e.server.KV().Rev() {
		return nil
	}
	return e.readIndex(ctx)
}

// Revision returns the newest committed revision (linearizable). The only member returns the newest
// one that any caller has been told of: all reads and writes go through the engine, so no caller
// knows of a newer one. Asking etcd would open a read transaction.
func (e *Engine) Revision(ctx context.Context) (int64, error) {
	if e.alone.Load() {
		return e.observed.Load(), nil
	}
	done, err := e.read()
	if err != nil {
		return 0, fmt.Errorf("read revision: %w", err)
	}
	defer done()
	if err := e.readIndex(ctx); err != nil {
		return 0, fmt.Errorf("read revision: %w", err)
	}
	return e.observe(e.server.KV().Rev()), nil
}

// observe records a revision that a caller will learn, and returns it.
func (e *Engine) observe(revision int64) int64 {
	for {
		old := e.observed.Load()
		if revision <= old || e.observed.CompareAndSwap(old, revision) {
			return revision
		}
	}
}

// notBehind reads until the answer is at least as new as the newest revision told to a caller: etcd
// sends a change to its watchers a moment before it shows it to readers.
func (e *Engine) notBehind(ctx context.Context, read func() (*mvcc.RangeResult, error)) (r *mvcc.RangeResult, err error) {
	defer e.faults(&err)()
	least := e.observed.Load()
	for {
		r, err := read()
		if err != nil && !errors.Is(err, mvcc.ErrFutureRev) || r.Rev >= least {
			return r, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		runtime.Gosched()
	}
}

// Get reads one key.
func (e *Engine) Get(ctx context.Context, key string, revision int64) (*store.KeyValue, int64, error) {
	done, err := e.read()
	if err != nil {
		return nil, 0, fmt.Errorf("get %s: %w", key, err)
	}
	defer done()
	if err := e.current(ctx, revision); err != nil {
		return nil, 0, fmt.Errorf("get %s at revision %d: %w", key, revision, err)
	}
	r, err := e.notBehind(ctx, func() (*mvcc.RangeResult, error) {
		// For one key, sharing etcd's buffer of recent writes is cheaper than copying it.
		tx := e.server.KV().Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
		defer tx.End()
		return tx.Range(ctx, []byte(key), nil, mvcc.RangeOptions{Rev: revision})
	})
	if err != nil {
		return nil, 0, fmt.Errorf("get %s at revision %d: %w", key, revision, translate(ctx, err))
	}
	at := readRevision(revision, e.observe(r.Rev))
	if len(r.KVs) == 0 {
		return nil, at, nil
	}
	kv := keyValue(&r.KVs[0])
	return &kv, at, nil
}

// Range reads the keys below a prefix.
func (e *Engine) Range(ctx context.Context, prefix string, opts store.RangeOptions) (store.RangeResult, error) {
	done, err := e.read()
	if err != nil {
		return store.RangeResult{}, fmt.Errorf("range %s: %w", prefix, err)
	}
	size := 0
	defer func() { done(); e.touch(size) }()
	if err := e.current(ctx, opts.Revision); err != nil {
		return store.RangeResult{}, fmt.Errorf("range %s at revision %d: %w", prefix, opts.Revision, err)
	}
	from, end := bounds(prefix, opts.From)
	r, err := e.notBehind(ctx, func() (*mvcc.RangeResult, error) {
		return e.server.KV().Range(ctx, from, end, mvcc.RangeOptions{Rev: opts.Revision, Limit: opts.Limit, Count: opts.CountOnly})
	})
	if err != nil {
		return store.RangeResult{}, fmt.Errorf("range %s at revision %d: %w", prefix, opts.Revision, translate(ctx, err))
	}
	out := store.RangeResult{
		Count:    int64(r.Count),
		Revision: readRevision(opts.Revision, e.observe(r.Rev)),
	}
	if opts.CountOnly {
		return out, nil
	}
	out.KVs = make([]store.KeyValue, len(r.KVs))
	for i := range r.KVs {
		out.KVs[i] = keyValue(&r.KVs[i])
		size += len(out.KVs[i].Value)
		if opts.KeysOnly {
			out.KVs[i].Value = nil
		}
	}
	out.More = int64(len(out.KVs)) < out.Count
	return out, nil
}

// Commit applies ops at one revision if all conditions hold.
func (e *Engine) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	if err := e.led(); err != nil {
		return store.TxnResult{}, fmt.Errorf("commit %s: %w", describe(conditions, ops), err)
	}
	taken, err := e.admit(ctx, ops)
	if err != nil {
		return store.TxnResult{}, fmt.Errorf("commit %s: %w", describe(conditions, ops), err)
	}
	resp, err := e.commit(ctx, conditions, ops)
	if err != nil || !resp.Succeeded {
		e.space.refund(taken)
	}
	if err != nil {
		return store.TxnResult{}, fmt.Errorf("commit %s: %w", describe(conditions, ops), translate(ctx, err))
	}
	e.observe(resp.Header.Revision)
	size := 0
	for i := range ops {
		size += len(ops[i].Value)
	}
	e.touch(size)
	return txnResult(resp, conditions), nil
}

// Compact drops all revisions older than revision.
func (e *Engine) Compact(ctx context.Context, revision int64) error {
	if _, err := e.server.Compact(ctx, &pb.CompactionRequest{Revision: revision}); err != nil {
		return fmt.Errorf("compact to revision %d: %w", revision, translate(ctx, err))
	}
	return nil
}

// Grant creates a lease of at least one second.
func (e *Engine) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if err := cmp.Or(e.led(), e.admitLease()); err != nil {
		return 0, fmt.Errorf("grant a lease of %s: %w", ttl, err)
	}
	// A lease that is granted twice ends by itself.
	resp, _, err := repeatable(ctx, e, &pb.LeaseGrantRequest{TTL: wholeSeconds(ttl)}, e.server.LeaseGrant)
	if err != nil {
		return 0, fmt.Errorf("grant a lease of %s: %w", ttl, translate(ctx, err))
	}
	return store.LeaseID(resp.ID), nil
}

// KeepAlive restarts the lease's time.
func (e *Engine) KeepAlive(ctx context.Context, id store.LeaseID) error {
	if _, err := e.server.LeaseRenew(ctx, lease.LeaseID(id)); err != nil {
		return fmt.Errorf("keep lease %x alive: %w", int64(id), translate(ctx, err))
	}
	return nil
}

// Revoke ends the lease and deletes its keys.
func (e *Engine) Revoke(ctx context.Context, id store.LeaseID) error {
	_, repeated, err := repeatable(ctx, e, &pb.LeaseRevokeRequest{ID: int64(id)}, e.server.LeaseRevoke)
	if err != nil && !(repeated && errors.Is(err, lease.ErrLeaseNotFound)) {
		return fmt.Errorf("revoke lease %x: %w", int64(id), translate(ctx, err))
	}
	return nil
}

// Size returns the bytes of storage in use.
func (e *Engine) Size(context.Context) (int64, error) {
	done, err := e.read()
	if err != nil {
		return 0, fmt.Errorf("read size: %w", err)
	}
	defer done()
	return e.server.Backend().SizeInUse(), nil
}

// Defragment returns the space of compacted revisions to the file system. It blocks writes
// meanwhile, and waits for snapshots that are being taken.
func (e *Engine) Defragment(context.Context) error {
	done, err := e.read()
	if err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	defer done()
	e.copying.Lock()
	defer e.copying.Unlock()
	e.mapping.Lock()
	defer e.mapping.Unlock()
	defer e.space.replaced()
	if err := e.server.Backend().Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	return nil
}

func wholeSeconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}

// readRevision returns the revision of a read: the requested one, else the newest.
func readRevision(asked, newest int64) int64 {
	if asked > 0 {
		return asked
	}
	return newest
}
