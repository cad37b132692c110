package registry

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/store"
)

// Transaction is the transaction that a write builds: the object itself and the additions of hooks.
type Transaction struct {
	Registry *Registry // the kind of the object
	Place    *Place    // the store of all its keys
	// DryRun transactions are built and not committed.
	DryRun bool
	// KeepsOwners is for a write that fails rather than lose managedFields: a server-side apply.
	KeepsOwners bool
	// Refresh waits until the caches that hooks read for their conditions are as new as the given
	// revision; nil if no hook added conditions.
	Refresh    func(ctx context.Context, revision int64)
	Conditions []store.Condition
	Ops        []store.Op
	// object is the object that the last operation writes; nil if the transaction removes it.
	object runtime.Object
	// DryRunErr is an error that a dry run reports only if there is no other.
	DryRunErr error
}

// Add adds an operation with its condition.
func (t *Transaction) Add(c store.Condition, op store.Op) {
	t.Conditions = append(t.Conditions, c)
	t.Ops = append(t.Ops, op)
}

// Commit applies the transaction. res.Succeeded is false if a condition did not hold.
func (t *Transaction) Commit(ctx context.Context) (res store.TxnResult, err error) {
	res, err = t.Place.Store.Commit(ctx, t.Conditions, t.Ops...)
	if errors.Is(err, store.ErrTooLarge) && t.dropManagedFields() {
		res, err = t.Place.Store.Commit(ctx, t.Conditions, t.Ops...)
	}
	if err != nil {
		return res, wire.StoreError(err)
	}
	if !res.Succeeded && t.Refresh != nil && len(t.Conditions) > 1 {
		t.Refresh(ctx, res.Revision) // before the write is tried again
	}
	return res, nil
}

// Put adds the object to the transaction.
func (t *Transaction) Put(c store.Condition, obj runtime.Object, stored []byte, lease store.LeaseID) {
	t.Add(c, store.Op{Key: c.Key, Value: stored, Lease: lease})
	t.object = obj
}

// dropManagedFields shrinks an object that is too large for the store by dropping its
// managedFields, which the writer did not send and which can be larger than the fields themselves
// if names are long. It reports whether there was anything to drop. An apply depends on
// managedFields and is refused instead.
func (t *Transaction) dropManagedFields() bool {
	if t.object == nil || t.KeepsOwners || len(wire.Accessor(t.object).GetManagedFields()) == 0 {
		return false
	}
	wire.Accessor(t.object).SetManagedFields(nil)
	stored, err := t.Registry.Codec.Encode(t.object)
	if err != nil {
		return false
	}
	t.Ops[len(t.Ops)-1].Value = stored
	return true
}

// Stored returns the bytes of the object that the transaction writes.
func (t *Transaction) Stored() []byte { return t.Ops[len(t.Ops)-1].Value }
