package cache

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
)

// Entry is one object at one revision. Immutable; what is derived is made once on first need.
type Entry struct {
	Header
	Key      string
	Revision int64
	Stored   []byte // as in the store; empty for entries of custom decoders that drop it
}

// Object is the decoded object, shared and read-only.
func (e *Entry) Object() (runtime.Object, error) { panic("skeleton") }

// Encoded is the object's encoding under a name chosen by the caller ("v1+json"), made once by encode and kept.
func (e *Entry) Encoded(format string, encode func(runtime.Object) ([]byte, error)) ([]byte, error) {
	panic("skeleton")
}

// Snapshot is all entries of a kind at one revision. Immutable.
type Snapshot struct{}

// Revision of the snapshot.
func (s *Snapshot) Revision() int64 { panic("skeleton") }

// Len is how many entries there are.
func (s *Snapshot) Len() int { panic("skeleton") }

// Get finds by full store key.
func (s *Snapshot) Get(key string) (*Entry, bool) { panic("skeleton") }

// Ascend calls fn for each entry below prefix with a key of at least from, in key order, until fn returns false.
func (s *Snapshot) Ascend(prefix, from string, fn func(*Entry) bool) { panic("skeleton") }

// Cursor is one watcher's place in the log.
type Cursor struct{}

// Next blocks until there are changes that concern the Interest, or until progress: with no changes and the revision
// that everything has been delivered up to, when the caller's context has been marked by deadline. ErrTooOld when the watcher fell off the log.
func (c *Cursor) Next(ctx context.Context) ([]Change, int64, error) { panic("skeleton") }

// Close releases the cursor.
func (c *Cursor) Close() {}
