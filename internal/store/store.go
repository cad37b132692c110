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
	"io"
	"time"
)

var (
	// ErrCompacted: the revision asked for has been compacted away.
	ErrCompacted = errors.New("revision compacted")
	// ErrFutureRevision: the revision asked for has not been committed yet.
	ErrFutureRevision = errors.New("revision is in the future")
	// ErrUnavailable: the engine can not answer now (no leader, shutting down); nothing is known
	// about the outcome of the operation.
	ErrUnavailable = errors.New("store unavailable")
	// ErrTooLarge: the transaction is larger than the engine takes (1.5 MiB, as upstream's etcd).
	ErrTooLarge = errors.New("etcdserver: request is too large")
	// ErrNoSpace: the engine's quota is used up; only deletions and compaction are taken.
	ErrNoSpace = errors.New("store is out of space")
	// ErrLeaseNotFound: the lease has expired, was revoked, or never was.
	ErrLeaseNotFound = errors.New("lease not found")
)

// KeyValue is one key at one revision.
type KeyValue struct {
	Key            string
	Value          []byte // shared: never modified
	CreateRevision int64
	ModRevision    int64
	Lease          LeaseID
}

// RangeOptions bounds a Range.
type RangeOptions struct {
	// From starts at this key instead of at the prefix (inclusive). Empty: at the prefix.
	From string
	// Limit is the most keys returned; 0 means no limit.
	Limit int64
	// Revision reads the snapshot at exactly this revision; 0 means the newest, linearizable.
	Revision int64
	// CountOnly leaves KVs empty.
	CountOnly bool
	// KeysOnly leaves the values empty.
	KeysOnly bool
}

// RangeResult is what a Range saw.
type RangeResult struct {
	KVs      []KeyValue
	Count    int64 // of all keys below the prefix from From on, whatever the limit
	More     bool
	Revision int64 // of the snapshot read
}

// LeaseID names a lease; 0 is none.
type LeaseID int64

// Op is one write of a transaction.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	Lease  LeaseID
}

// Condition holds when the key's ModRevision is as said; 0 means that the key does not exist.
type Condition struct {
	Key         string
	ModRevision int64
}

// TxnResult is the outcome of a transaction.
type TxnResult struct {
	Succeeded bool
	Revision  int64 // the commit's revision if it succeeded, else the one at which the conditions were read
	// Current holds, when Succeeded is false, the current state of each condition's key in order
	// (nil where the key does not exist).
	Current []*KeyValue
}

// EventType says what happened to a key.
type EventType uint8

const (
	Put EventType = iota
	Deleted
)

// Event is one change of one key. For Deleted, KV carries Key and ModRevision (of the deletion) only. A key was
// created by the event if CreateRevision equals ModRevision. The state before is not told: who follows a stream from a
// Range has it, and reading it again would cost the store a read per event.
type Event struct {
	Type EventType
	KV   KeyValue
}

// Batch is a group of changes delivered together, in revision order: all of a revision's events are in one batch (which may
// hold several revisions), and batches come in revision order. Everything up to Revision has been delivered with the batch. A batch
// without events is progress and nothing else.
type Batch struct {
	Revision int64
	Events   []Event
}

// Stream is an open watch. Next blocks until there is a batch, ctx ends or the stream fails
// (ErrCompacted when the watch fell behind a compaction). Next is not safe for concurrent use; Progress and Close
// may be called while Next blocks.
type Stream interface {
	Next(ctx context.Context) (Batch, error)
	// Progress asks for a batch, with or without events, that brings the stream to the revision that is the newest now. It
	// does not wait for it. The answer may get lost when the stream is busy delivering events, so ask again after a while.
	Progress(ctx context.Context) error
	Close()
}

// Store is the contract. All methods are safe for concurrent use. Acknowledged means on disk (fsync).
type Store interface {
	// Get returns nil when the key does not exist, and the revision it read at. revision 0 is the newest, linearizable.
	Get(ctx context.Context, key string, revision int64) (*KeyValue, int64, error)
	Range(ctx context.Context, prefix string, opts RangeOptions) (RangeResult, error)
	// Commit applies ops atomically at one new revision if all conditions hold.
	Commit(ctx context.Context, conditions []Condition, ops ...Op) (TxnResult, error)
	// Watch streams every change below prefix with a revision greater than after, without gaps.
	// after 0 means from now on: all that is committed after Watch has returned.
	Watch(ctx context.Context, prefix string, after int64) (Stream, error)
	// Revision is the newest committed revision (linearizable).
	Revision(ctx context.Context) (int64, error)
	// Compact forgets what is older than revision.
	Compact(ctx context.Context, revision int64) error
	// Grant makes a lease, of whole seconds (rounded up; engines may have a minimum). Keys attached to it are deleted when it expires.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, error)
	// KeepAlive starts the lease's time again; ErrLeaseNotFound when it is gone.
	KeepAlive(ctx context.Context, id LeaseID) error
	// Revoke ends the lease and deletes its keys.
	Revoke(ctx context.Context, id LeaseID) error
	// Size is the bytes of storage in use.
	Size(ctx context.Context) (int64, error)
	Close() error
}

// Snapshotter is a Store that copies itself, as both engines do.
type Snapshotter interface {
	// Snapshot writes everything at one moment to w, as a file in etcd's format with a hash at its end. Reads and writes go on meanwhile.
	Snapshot(ctx context.Context, w io.Writer) error
}
