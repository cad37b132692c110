// Package store defines the contract between the API server and its storage: an ordered map
// of keys to bytes with one monotonic revision, compare-and-swap, and a gap-free watch.
//
// Words. A revision numbers a committed transaction; every key remembers the revision that
// created it and the one that last changed it. A snapshot is the whole map at one revision.
// Compaction forgets snapshots below a revision; reading them afterwards fails with ErrCompacted.
//
// The engine is store/etcd. Every implementation passes storetest.Run.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

var (
	// ErrCompacted means that the requested revision has been compacted.
	ErrCompacted = errors.New("revision compacted")
	// ErrFutureRevision means that the requested revision has not been committed yet.
	ErrFutureRevision = errors.New("revision is in the future")
	// ErrUnavailable means that the engine cannot answer now (no leader, shutting down). The
	// outcome of the operation is unknown.
	ErrUnavailable = errors.New("store unavailable")
	// ErrNotBegun is an ErrUnavailable of an operation that has changed nothing: the engine refused
	// it before it began.
	ErrNotBegun = fmt.Errorf("%w: nothing was written", ErrUnavailable)
	// ErrTooLarge means that the transaction exceeds the engine's limit (1.5 MiB, as upstream's
	// etcd).
	ErrTooLarge = errors.New("etcdserver: request is too large")
	// ErrNoSpace means that the engine's quota or its disk is used up. At the quota it accepts
	// what does not grow. The text is etcd's.
	ErrNoSpace = errors.New("etcdserver: mvcc: database space exceeded")
	// ErrLeaseNotFound means that the lease has expired, was revoked, or never existed.
	ErrLeaseNotFound = errors.New("lease not found")
)

// NoSpaceError is ErrNoSpace with the figures and the remedy.
type NoSpaceError struct{ Reason string }

func (e *NoSpaceError) Error() string { return e.Reason }

// Unwrap makes it an ErrNoSpace.
func (e *NoSpaceError) Unwrap() error { return ErrNoSpace }

// KeyValue is one key at one revision.
type KeyValue struct {
	Key            string
	Value          []byte // shared: do not modify
	CreateRevision int64
	ModRevision    int64
	Lease          LeaseID
}

// RangeOptions restricts a Range.
type RangeOptions struct {
	// From is the first key of the range; empty means the prefix.
	From string
	// Limit is the most keys to return; 0 means no limit.
	Limit int64
	// Revision selects the snapshot at exactly this revision; 0 means the newest, linearizable.
	Revision int64
	// CountOnly leaves KVs empty.
	CountOnly bool
	// KeysOnly leaves the values empty.
	KeysOnly bool
}

// RangeResult is the result of a Range.
type RangeResult struct {
	KVs      []KeyValue
	Count    int64 // number of keys from From on, ignoring Limit
	More     bool
	Revision int64 // of the snapshot read
}

// LeaseID identifies a lease; 0 means none.
type LeaseID int64

// Op is one write of a transaction.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	Lease  LeaseID
}

// Condition holds if the key's ModRevision is as given; 0 means that the key does not exist.
type Condition struct {
	Key         string
	ModRevision int64
}

// TxnResult is the outcome of a transaction.
type TxnResult struct {
	Succeeded bool
	Revision  int64 // of the commit if it succeeded, else of the read of the conditions
	// Current holds, if Succeeded is false, the current state of each condition's key in order (nil
	// for a key that does not exist).
	Current []*KeyValue
}

// EventType is the kind of change of a key.
type EventType uint8

const (
	Put EventType = iota
	Deleted
)

// Event is one change of one key. For Deleted, KV carries only Key and ModRevision (of the
// deletion). The event created the key if CreateRevision equals ModRevision. The previous state is
// not included: a reader that follows a stream from a Range has it, and it would cost the store a
// read per event.
type Event struct {
	Type EventType
	KV   KeyValue
}

// Batch is a group of changes delivered together. It may hold several revisions, in order, and
// holds each of them whole. Batches come in revision order. With the batch, everything up to
// Revision has been delivered. A batch without events only reports progress.
type Batch struct {
	Revision int64
	Events   []Event
}

// Stream is an open watch. Next waits for a batch, the end of ctx, or a failure of the stream
// (ErrCompacted if a compaction has overtaken the watch). Next is not safe for concurrent use.
// Progress and Close may be called while Next waits.
type Stream interface {
	Next(ctx context.Context) (Batch, error)
	// Progress requests a batch, with or without events, that brings the stream to the currently
	// newest revision. It does not wait for the batch. The answer may get lost while the stream
	// delivers events, so repeat the request after a while.
	Progress(ctx context.Context) error
	Close()
}

// Store is the contract. All methods are safe for concurrent use. An acknowledged write is on disk
// (fsync).
type Store interface {
	// Get returns the key's state, nil if the key does not exist, and the revision of the read.
	// Revision 0 means the newest, linearizable.
	Get(ctx context.Context, key string, revision int64) (*KeyValue, int64, error)
	Range(ctx context.Context, prefix string, opts RangeOptions) (RangeResult, error)
	// Commit applies ops atomically at one new revision if all conditions hold.
	Commit(ctx context.Context, conditions []Condition, ops ...Op) (TxnResult, error)
	// Watch streams every change below prefix with a revision greater than after, without gaps. 0
	// means every change committed after Watch has returned.
	Watch(ctx context.Context, prefix string, after int64) (Stream, error)
	// Revision returns the newest committed revision (linearizable).
	Revision(ctx context.Context) (int64, error)
	// Compact drops all revisions older than revision.
	Compact(ctx context.Context, revision int64) error
	// Grant creates a lease of whole seconds, rounded up; engines may have a minimum. Keys attached
	// to it are deleted when it expires.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, error)
	// KeepAlive restarts the lease's time; ErrLeaseNotFound if it is gone.
	KeepAlive(ctx context.Context, id LeaseID) error
	// Revoke ends the lease and deletes its keys.
	Revoke(ctx context.Context, id LeaseID) error
	// Size returns the bytes of storage in use.
	Size(ctx context.Context) (int64, error)
	Close() error
}

// Snapshotter is a Store that can copy itself, as both engines can.
type Snapshotter interface {
	// Snapshot writes all data of one moment to w, as a file in etcd's format with a hash at the
	// end. It does not block reads and writes.
	Snapshot(ctx context.Context, w io.Writer) error
}
