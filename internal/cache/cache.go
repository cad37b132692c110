// Package cache keeps an immutable snapshot of the store per kind, and a bounded log of its
// changes. Each object is encoded once per wire format, and all readers share the bytes.
//
// Words. An Entry is one object at one revision. A Snapshot is all entries of a kind at one
// revision. A Change is the replacement of one Entry by another. A Cursor is one watcher's place in
// the log.
//
// In: one watch of the store, and listings of each kind. Out: snapshots, changes and encodings.
package cache

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// ErrTooOld means that the revision has left the log or was compacted; the reader must list again
// (410).
var ErrTooOld = errors.New("revision is too old")

// ErrForgotten is the ErrTooOld of a kind that was forgotten. The reader's data is not stale, but
// no more changes will follow.
var ErrForgotten = fmt.Errorf("%w: the kind was forgotten", ErrTooOld)

// ErrFuture means that the revision was not reached before the context's deadline.
var ErrFuture = errors.New("revision not reached yet")

// Header holds the fields that selection needs, without the decoded object.
type Header struct {
	Namespace string
	Name      string
	UID       string
	Labels    Pairs
	// Selectable fields except metadata.name and metadata.namespace, see Entry.Selectable.
	Fields Pairs
}

// Schema tells a Kind how to decode its stored bytes. Its functions are pure.
type Schema struct {
	Prefix string // such as "/registry/pods"
	// Decode decodes stored bytes, applies defaults and sets resourceVersion to the revision.
	Decode func(stored []byte, revision int64) (runtime.Object, error)
	// Header reads the header from a decoded object.
	Header func(obj runtime.Object) Header
	// Keep keeps all objects decoded, for kinds with readers that hold all objects or scan them
	// again and again.
	Keep bool
}

// Interest restricts a Cursor or a listing to a namespace, a name or selectors. Nil selectors match
// everything.
type Interest struct {
	Namespace string
	Name      string
	Labels    labels.Selector
	Fields    fields.Selector
}

// ChangeType is the type of a change for a watcher with an Interest. An object whose labels start
// to match is Added; one that stops to match is Deleted.
type ChangeType uint8

const (
	Added ChangeType = iota
	Modified
	Deleted
)

// Change is one event for one watcher.
type Change struct {
	Type ChangeType
	// Entry is the new state. For Deleted it is the last state with the revision of the deletion,
	// as upstream.
	Entry *Entry
	// Old is the previous state; nil for a creation.
	Old *Entry
	// Revision is the revision of the change.
	Revision int64
}

// Reader is the interface of one kind's cache; *Kind implements it.
type Reader interface {
	// Snapshot returns the newest applied state. Call WaitFor(revision) first to get a state at
	// least that new.
	Snapshot() *Snapshot
	// Revision returns the revision that a Snapshot would have now.
	Revision() int64
	WaitFor(ctx context.Context, revision int64) error
	// At returns the snapshot at exactly this revision: from memory while it is recent, else from
	// the store. It returns ErrTooOld if the revision was compacted.
	At(ctx context.Context, revision int64) (*Snapshot, error)
	// Watch opens a cursor on the changes after the revision. It returns ErrTooOld if they are no
	// longer in the log.
	Watch(after int64, interest Interest) (*Cursor, error)
}
