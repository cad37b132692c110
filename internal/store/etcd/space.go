package etcd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/config"

	"github.com/knarr-project/knarr/internal/store"
)

const (
	// DefaultQuota is the most bytes that the data may use in the database, as etcd recommends.
	DefaultQuota = 8 << 30
	// LeastQuota is the smallest quota: an empty cluster needs a few MiB, and the reserve as much.
	LeastQuota = 32 << 20

	// keyOverhead is etcd's estimate of the bytes that a revision of a key needs beside key and
	// value.
	keyOverhead = 256
	// slack is the number of bytes by which an update at the quota may enlarge a value: a
	// finalizer, a deletionTimestamp, a condition.
	slack = 4 << 10
	// reserveWait is how long an update waits for a compaction if the reserve is used up.
	reserveWait = 15 * time.Second
)

// space decides about writes by the space they need. etcd has a quota of its own, on the size of
// the file. It never shrinks by itself, and beyond it etcd refuses deletions of most objects too:
// they begin with an update. So this quota is on the bytes in use, it leaves a reserve for what
// frees space, and etcd's is set so high that it is not reached.
//
//	0 ........ quota ............ quota + reserve ............ hard
//	everything | nothing that grows | updates wait            | etcd's alarm
type space struct {
	quota, reserve, hard int64
	vital                []string // prefixes of keys that are always written

	refusedQuota, refusedDisk atomic.Int64 // writes

	mu      sync.Mutex
	commits int64 // of the database, when pending was 0
	pending int64 // bytes of writes that are not in the database's size yet
	disk    disk
}

// vitalPrefix is the prefix of knarr's own keys, such as its leaders. They are written at the quota
// too.
const vitalPrefix = "/knarr/"

// limits returns the limits of a data folder, and sets etcd's own.
func limits(opts Options, cfg *config.ServerConfig) *space {
	quota := opts.Quota
	if quota <= 0 {
		quota = DefaultQuota
	}
	var size int64 // of the file of an earlier run, maybe with a larger quota
	if info, err := os.Stat(cfg.BackendPath()); err == nil {
		size = info.Size()
	}
	s := &space{
		quota: quota, reserve: max(quota/10, LeastQuota/2), hard: max(2*quota, size+quota),
		vital: append([]string{vitalPrefix}, opts.Vital...),
		disk:  disk{dir: cfg.DataDir, path: cfg.BackendPath()},
	}
	cfg.QuotaBackendBytes = s.hard
	return s
}

// admit decides whether a transaction may be committed, and counts its bytes. The caller returns
// the bytes with refund if nothing was written.
func (e *Engine) admit(ctx context.Context, ops []store.Op) (bytes int64, err error) {
	grows := false
	for i := range ops {
		bytes += int64(keyOverhead + len(ops[i].Key) + len(ops[i].Value))
		grows = grows || !ops[i].Delete
	}
	if bytes == 0 {
		return 0, nil
	}
	s := e.space
	if err := e.failure.refusal(); err != nil {
		return 0, err
	}
	used, err := s.take(e, bytes)
	if err != nil {
		s.refusedDisk.Add(1)
		return 0, err
	}
	if used <= s.quota {
		return bytes, nil
	}
	e.keeper.hurry()
	if !grows {
		return bytes, nil
	}
	if err := e.judge(ctx, ops, used); err != nil {
		s.refund(bytes)
		s.refusedQuota.Add(1)
		return 0, err
	}
	return bytes, nil
}

// take adds bytes to the pending ones and returns the bytes that are then in use. It fails if the
// disk is full.
func (s *space) take(e *Engine, bytes int64) (used int64, err error) {
	be := e.server.Backend()
	s.mu.Lock()
	defer s.mu.Unlock()
	// etcd updates the database's size when it writes a batch.
	if c, ok := be.(interface{ Commits() int64 }); ok {
		if now := c.Commits(); now != s.commits {
			s.commits, s.pending = now, 0
		}
	}
	if err := s.disk.check(be.Size()+2*(s.pending+bytes), bytes); err != nil {
		return 0, err
	}
	s.pending += bytes
	return be.SizeInUse() + s.pending, nil
}

// admitLease refuses a lease if the disk is full. It needs no space of the quota to speak of.
func (e *Engine) admitLease() error {
	if err := e.failure.refusal(); err != nil {
		return err
	}
	if _, err := e.space.take(e, keyOverhead); err != nil {
		e.space.refusedDisk.Add(1)
		return err
	}
	return nil
}

// replaced tells that the database is in another file now.
func (s *space) replaced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disk.allocated = 0
}

func (s *space) refund(bytes int64) {
	s.mu.Lock()
	s.pending = max(0, s.pending-bytes)
	s.mu.Unlock()
}

// used returns the bytes in use, with the pending ones.
func (s *space) used(e *Engine) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	be := e.server.Backend()
	if c, ok := be.(interface{ Commits() int64 }); ok && c.Commits() != s.commits {
		return be.SizeInUse()
	}
	return be.SizeInUse() + s.pending
}

// judge refuses a transaction that makes the data grow beyond the quota. If the reserve is used up,
// other updates wait for a compaction.
func (e *Engine) judge(ctx context.Context, ops []store.Op, used int64) error {
	s, reserved := e.space, false
	for i := range ops {
		op := &ops[i]
		if op.Delete || s.isVital(op.Key) && used < s.hard-s.reserve/2 {
			continue
		}
		old, _, err := e.Get(ctx, op.Key, 0)
		switch {
		case err != nil:
			return err
		case old == nil:
			return s.full(used, "nothing can be created")
		case len(op.Value) > len(old.Value)+slack:
			return s.full(used, "nothing can be made larger")
		}
		reserved = true
	}
	if !reserved || used <= s.quota+s.reserve {
		return nil
	}
	return e.awaitReserve(ctx)
}

// awaitReserve waits until the keeper has made space in the reserve.
func (e *Engine) awaitReserve(ctx context.Context) error {
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(reserveWait); ; {
		select {
		case <-poll.C:
		case <-e.failure.done:
			return e.failure.refusal()
		case <-ctx.Done():
			return ctx.Err()
		}
		used := e.space.used(e)
		switch {
		case used <= e.space.quota+e.space.reserve:
			return nil
		case time.Now().After(end):
			return e.space.full(used, "the reserve for deletions is used up until old revisions are compacted")
		}
	}
}

func (s *space) isVital(key string) bool {
	for _, prefix := range s.vital {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

func (s *space) full(used int64, consequence string) error {
	return &store.NoSpaceError{Reason: fmt.Sprintf("%v: %s of the store's quota of %s are in use, so %s; delete objects (the space is free within a minute) or raise --store-quota",
		store.ErrNoSpace, megabytes(used), megabytes(s.quota), consequence)}
}
