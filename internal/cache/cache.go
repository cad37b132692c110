// Package cache keeps, per kind, an immutable snapshot of the store and a bounded log of its changes; each object
// is encoded once per wire format, and every reader shares the bytes.
//
// Words. An Entry is one object at one revision. A Snapshot is all entries of a kind at one revision. A Change is an
// Entry replacing another one. A Cursor is one watcher's place in the log.
package cache

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// ErrTooOld: the revision has fallen off the log or was compacted; the reader must list again (410).
var ErrTooOld = errors.New("revision is too old")

// ErrForgotten is the ErrTooOld of a kind that is no longer served as it was: nothing that its readers have is out of date, but there is nothing more to
// come.
var ErrForgotten = fmt.Errorf("%w: the kind was forgotten", ErrTooOld)

// ErrFuture: the revision was not reached within the time that the context allowed.
var ErrFuture = errors.New("revision not reached yet")

// Header is what selection needs, without decoding the object.
type Header struct {
	Namespace string
	Name      string
	UID       string
	Labels    Pairs
	Fields    Pairs // selectable fields besides metadata.name and metadata.namespace: see Entry.Selectable
}

// Schema tells a Kind how to read its stored bytes. Functions are pure.
type Schema struct {
	Prefix string // "/registry/pods"
	// Decode makes the object from stored bytes, with defaults applied and resourceVersion set to the revision.
	Decode func(stored []byte, revision int64) (runtime.Object, error)
	// Header reads the header from a decoded object.
	Header func(obj runtime.Object) Header
	// Keep says that there are readers which hold all objects, or look at all of them again and again: they stay decoded.
	Keep bool
}

// Interest narrows a Cursor or a listing to a namespace, a name or selectors; nil selectors match everything.
type Interest struct {
	Namespace string
	Name      string
	Labels    labels.Selector
	Fields    fields.Selector
}

// ChangeType is what a change looks like to a watcher with an Interest: an object whose labels start to match is
// Added, one that stops to match is Deleted.
type ChangeType uint8

const (
	Added ChangeType = iota
	Modified
	Deleted
)

// Change is one event for one watcher.
type Change struct {
	Type ChangeType
	// Entry is the new state; for Deleted the last state, re-stamped with the revision of the deletion (as upstream).
	Entry *Entry
	// Old is the state before, nil for a creation.
	Old *Entry
	// Revision of the change.
	Revision int64
}

// Reader is one kind's cache as its users see it; *Kind implements it.
type Reader interface {
	// Snapshot is the newest state applied. WaitFor(revision) first makes it at least that new.
	Snapshot() *Snapshot
	// Revision is the revision that a Snapshot taken now has.
	Revision() int64
	WaitFor(ctx context.Context, revision int64) error
	// At is the snapshot at exactly this revision: from memory while it is recent, else read from the store.
	// ErrTooOld when compacted.
	At(ctx context.Context, revision int64) (*Snapshot, error)
	// Watch opens a cursor on the changes after the revision. ErrTooOld when they are no longer in the log.
	Watch(after int64, interest Interest) (*Cursor, error)
}
