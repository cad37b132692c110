package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/knarr-project/knarr/internal/store"
)

const (
	// The keeper looks at the engine at this interval, and more often while space is short.
	keepEvery      = 10 * time.Second
	keepEveryShort = 2 * time.Second

	// relief is the time for which the engine makes space after it has fallen below its quota, so
	// that it does not reach it again at once.
	relief = time.Minute

	// Free pages are given back to the file system when they are more than half of the file, and
	// more than this.
	leastFree = 64 << 20
	// quietRate is the number of commits a second up to which the load counts as low.
	quietRate = 20
	// patience is the time after which the keeper no longer waits for a low load.
	patience = time.Hour
	// defragmentEvery is the shortest time between two attempts.
	defragmentEvery = 10 * time.Minute

	// defragmentKey is held by the member that defragments, so that one does at a time.
	defragmentKey = vitalPrefix + "defragment"
	// defragmentTTL is longer than a defragmentation takes. The holder deletes its key itself.
	defragmentTTL = 10 * time.Minute
)

// keeper looks after the engine's space and health in the background: it compacts at the quota,
// defragments, and ends etcd's alarms once their cause is gone.
type keeper struct {
	e    *Engine
	log  *slog.Logger
	kick chan struct{}
	stop context.CancelFunc
	done sync.WaitGroup
	slow func(SlowDisk) // may be nil

	// The rest belongs to the keeper's goroutine.
	seen         int64     // the newest revision at the last look
	compacted    int64     // the last compaction
	nextCompact  time.Time // a compaction of much data is not repeated at once
	full         bool      // the quota was reached at the last look
	short        time.Time // until when space is made
	due          time.Time // since when a defragmentation is due; zero if it is not
	tried        time.Time // the last attempt
	lastLook     time.Time // the load is measured since then
	lastCommits  int64     // revision at that time
	corruptSince map[uint64]time.Time
	speed        diskSpeed
}

// startKeeper starts the keeper of e.
func startKeeper(e *Engine, opts Options) {
	log := opts.Log
	if log == nil {
		log = slog.Default()
	}
	ctx, stop := context.WithCancel(context.Background())
	k := &keeper{e: e, log: log, kick: make(chan struct{}, 1), stop: stop, slow: opts.OnSlowDisk, corruptSince: map[uint64]time.Time{}}
	k.lastLook, k.lastCommits, k.seen = time.Now(), e.observed.Load(), e.observed.Load()
	e.keeper = k
	k.done.Go(func() { k.run(ctx) })
}

// hurry makes the keeper look soon. It may be called before the keeper has started.
func (k *keeper) hurry() {
	if k == nil {
		return
	}
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// close ends the keeper. A failed engine may block it for ever.
func (k *keeper) close() {
	if k == nil {
		return // the start has failed
	}
	k.stop()
	ended := make(chan struct{})
	go func() { k.done.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-k.e.failure.done:
	}
}

func (k *keeper) run(ctx context.Context) {
	k.look(ctx) // an alarm of an earlier run
	for {
		every, kick := keepEvery, k.kick
		if time.Now().Before(k.short) {
			every, kick = keepEveryShort, nil
		}
		select {
		case <-time.After(every):
		case <-kick:
		case <-k.e.failure.done:
			return
		case <-k.e.server.StopNotify(): // the member was removed
			return
		case <-ctx.Done():
			return
		}
		k.look(ctx)
	}
}

// look does one round of all duties.
func (k *keeper) look(ctx context.Context) {
	be := k.e.server.Backend()
	used, size := k.e.space.used(k.e), be.Size()
	capped := k.alarms(ctx, size)
	k.noteQuota(used)
	if k.full || capped {
		k.short = time.Now().Add(relief)
	}
	if time.Now().Before(k.short) {
		k.settle(ctx)
		k.compact(ctx)
	}
	k.seen = k.e.observed.Load()
	if k.shouldDefragment(size, be.SizeInUse(), capped) {
		k.defragment(ctx)
	}
	k.speed.look(k)
}

// noteQuota says once that the quota is reached, and once that there is room again.
func (k *keeper) noteQuota(used int64) {
	s := k.e.space
	full := used > s.quota
	if full != k.full {
		if full {
			k.log.Warn("the store has reached its quota: what would grow it is refused", "used", megabytes(used), "quota", megabytes(s.quota),
				"remedy", "delete objects, or raise --store-quota")
		} else {
			k.log.Info("the store is below its quota again", "used", megabytes(used), "quota", megabytes(s.quota))
		}
	}
	k.full = full
}

// compact drops the revisions before the one seen at the last look: continue tokens and watches
// of some seconds go on.
func (k *keeper) compact(ctx context.Context) {
	if k.seen <= k.compacted || time.Now().Before(k.nextCompact) {
		return
	}
	if err := k.e.Compact(ctx, k.seen); err != nil && !errors.Is(err, store.ErrCompacted) {
		k.report(ctx, "cannot compact the store", err)
		return
	}
	k.compacted = k.seen
	// etcd reads all of the data for a compaction, in the background.
	const bytesPerSecond = 20 << 20
	k.nextCompact = time.Now().Add(time.Duration(k.e.server.Backend().SizeInUse()/bytesPerSecond) * time.Second)
}

// settle makes the database count the pages that a compaction has freed. It does so when it writes
// the next batches, but at the quota there may be no more writes. A lease changes no key.
func (k *keeper) settle(ctx context.Context) {
	lease, err := k.e.Grant(ctx, time.Second)
	if err == nil {
		k.e.server.Backend().ForceCommit()
		err = k.e.Revoke(ctx, lease)
		k.e.server.Backend().ForceCommit()
	}
	if err != nil && !errors.Is(err, store.ErrNoSpace) {
		k.report(ctx, "cannot settle the store", err)
	}
}

func (k *keeper) report(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && k.e.failure.cause() == nil {
		k.log.Warn(what, "error", err)
	}
}

// shouldDefragment reports whether free pages should be given back now. capped means that etcd's
// alarm cannot be ended before.
func (k *keeper) shouldDefragment(size, used int64, capped bool) bool {
	now, commits := time.Now(), k.e.observed.Load()
	rate := float64(commits-k.lastCommits) / max(now.Sub(k.lastLook).Seconds(), 0.001)
	k.lastLook, k.lastCommits = now, commits
	free := size - used
	urgent := free > size/10 && (capped || size > k.e.space.hard/10*9)
	if !urgent && (free <= size/2 || free <= leastFree) {
		k.due = time.Time{}
		return false
	}
	if k.due.IsZero() {
		k.due = now
	}
	if now.Sub(k.tried) < defragmentEvery && !capped {
		return false
	}
	return urgent || rate <= quietRate || now.Sub(k.due) > patience
}

// defragment rewrites the database file without its free pages, on one member of a cluster at a
// time. A leader hands over before, because its writes wait meanwhile.
func (k *keeper) defragment(ctx context.Context) {
	k.tried = time.Now()
	be := k.e.server.Backend()
	size, used := be.Size(), be.SizeInUse()
	// The new file stands beside the old one for a moment.
	if free := FreeBytes(k.e.space.disk.dir); free >= 0 && free < used+used/10+DiskReserve {
		k.log.Warn("not enough free disk space to defragment the store", "free", megabytes(free), "needed", megabytes(used+used/10+DiskReserve), "folder", k.e.space.disk.dir)
		return
	}
	if !k.e.copying.TryLock() {
		return // a snapshot is taken, for which the writes would have to wait too
	}
	k.e.copying.Unlock()
	release, err := k.holdDefragmentation(ctx)
	if err != nil {
		k.report(ctx, "cannot lock the defragmentation of the store", err)
		return
	}
	if release == nil {
		return // another member defragments
	}
	defer release()
	begin := time.Now()
	if err := k.e.Defragment(ctx); err != nil {
		k.report(ctx, "cannot defragment the store", err)
		return
	}
	k.due = time.Time{}
	k.log.Info("defragmented the store", "before", megabytes(size), "after", megabytes(k.e.server.Backend().Size()), "took", time.Since(begin).Round(time.Millisecond))
}

// holdDefragmentation takes the lock of a cluster of several members; release is nil if another
// member has it. A sole member needs none.
func (k *keeper) holdDefragmentation(ctx context.Context) (release func(), err error) {
	if k.e.Alone() {
		return func() {}, nil
	}
	if err := k.e.HandOver(ctx); err != nil {
		return nil, err
	}
	lease, err := k.e.Grant(ctx, defragmentTTL)
	if err != nil {
		return nil, err
	}
	release = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepEvery)
		defer cancel()
		if err := k.e.Revoke(ctx, lease); err != nil {
			k.report(ctx, "cannot unlock the defragmentation of the store", err)
		}
	}
	name := types.ID(k.e.server.MemberID()).String()
	res, err := k.e.Commit(ctx, []store.Condition{{Key: defragmentKey}}, store.Op{Key: defragmentKey, Value: []byte(name), Lease: lease})
	if err != nil || !res.Succeeded {
		release()
		return nil, err
	}
	return release, nil
}
