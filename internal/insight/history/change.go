package history

import (
	"context"
	"time"
)

// Effect is what a change did to its object.
type Effect uint8

const (
	Created Effect = iota
	Changed
	Removed
)

// String returns the effect's name in answers.
func (e Effect) String() string {
	switch e {
	case Created:
		return "created"
	case Changed:
		return "changed"
	}
	return "removed"
}

// Change is one write of one object.
type Change struct {
	// Revision is the store's revision of the write.
	Revision int64
	// Time is when the server saw the write, in microseconds. It never decreases.
	Time   time.Time
	Key    string // in the store
	Effect Effect
	// Before is the stored form of the state that was replaced, and BeforeRevision its revision.
	// Both are zero for a creation.
	Before         []byte
	BeforeRevision int64
	// Lost says that Before is not known.
	Lost bool
	// Omitted says that values were left out of Before, or all of it.
	Omitted bool
	// Touched are the fields that changed among those left out.
	Touched []string
}

// Gap is a time of which the log does not have all changes.
type Gap struct {
	From, To                 time.Time
	FromRevision, ToRevision int64
}

// Write is a change as the watch cache sees it.
type Write struct {
	Key      string
	Revision int64
	Effect   Effect
	// Before is the replaced state if it is known.
	Before         []byte
	BeforeRevision int64
	// After is the new state; nil if the object was removed.
	After []byte
	// Replayed says that the write was made before the log was opened, at a time that is not known.
	Replayed bool
}

// Rules say what a Log keeps. Append calls Recorded; the writer's goroutine calls the others.
type Rules interface {
	// Recorded reports whether changes of a key are recorded at all.
	Recorded(key string) bool
	// Describe returns the kind of a key, as a name that questions use, and its namespace.
	Describe(key string) (kind, namespace string)
	// Before reads the state of a key before a revision, and the revision of that state.
	Before(ctx context.Context, key string, revision int64) (state []byte, modified int64, err error)
	// Reduce leaves out of a change what may not be kept. For a replayed write it may correct the
	// time.
	Reduce(c *Change, w *Write)
}
