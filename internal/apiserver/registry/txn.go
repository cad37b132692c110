package registry

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/insight/causes"
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
	// Guards are the objects that the write depends on and does not change.
	Guards []Guard
	// Beside is a write of another kind that is committed together with this one. A write that
	// cannot be committed does not stop this one: Commit then sets Beside to nil (ADR 0105).
	Beside *Transaction
	// object is the object that the last operation writes; nil if the transaction removes it.
	object runtime.Object
	// Author is the request of the write, for the causal log.
	Author Author
	// subject is the object that the log names, with what happens to it.
	subject runtime.Object
	effect  causes.Effect
	// DryRunErr is an error that a dry run reports only if there is no other.
	DryRunErr error
}

// Guard is an object that a write depends on, such as its namespace. If the object has changed
// since it was read, through this server or another, the write is committed only if the new state
// allows it.
type Guard struct {
	Key      string
	Revision int64
	// Allows returns why a write is refused in the object's new state; kv is nil if the object is
	// gone.
	Allows func(kv *store.KeyValue) error
}

// Add adds an operation with its condition.
func (t *Transaction) Add(c store.Condition, op store.Op) {
	t.Conditions = append(t.Conditions, c)
	t.Ops = append(t.Ops, op)
}

// Commit applies the transaction. res.Succeeded is false if a condition did not hold.
func (t *Transaction) Commit(ctx context.Context) (res store.TxnResult, err error) {
	if t.Beside != nil {
		if res, done, err := t.commitBoth(ctx); done {
			return res, err
		}
		t.Beside = nil
	}
	for {
		res, err = t.commitGuarded(ctx)
		if errors.Is(err, store.ErrTooLarge) && t.dropManagedFields() {
			res, err = t.commitGuarded(ctx)
		}
		if err != nil {
			return res, wire.CommitError(err)
		}
		if res.Succeeded {
			t.record(ctx, res.Revision)
			return res, nil
		}
		again, err := t.checkGuards(&res)
		if err != nil {
			return res, err
		}
		if !again {
			break
		}
	}
	if t.Refresh != nil && len(t.Conditions) > 1 {
		t.Refresh(ctx, res.Revision) // before the write is tried again
	}
	return res, nil
}

// commitGuarded commits on condition that the guards have not changed.
func (t *Transaction) commitGuarded(ctx context.Context) (store.TxnResult, error) {
	return t.Place.Store.Commit(ctx, t.allConditions(), t.Ops...)
}

// allConditions returns the conditions and those of the guards.
func (t *Transaction) allConditions() []store.Condition {
	if len(t.Guards) == 0 {
		return t.Conditions
	}
	all := append(make([]store.Condition, 0, len(t.Conditions)+len(t.Guards)), t.Conditions...)
	for _, g := range t.Guards {
		all = append(all, store.Condition{Key: g.Key, ModRevision: g.Revision})
	}
	return all
}

// checkGuards looks at the outcome of a transaction that was not committed. It reports whether only
// guards have changed and all of them still allow the write. It removes them from the outcome.
func (t *Transaction) checkGuards(res *store.TxnResult) (again bool, err error) {
	n := len(t.Conditions)
	guards := res.Current[n:]
	res.Current = res.Current[:n:n]
	if !t.conditionsHold(res.Current) {
		return false, nil
	}
	for i := range t.Guards {
		g, now := &t.Guards[i], modRevision(guards[i])
		if now == g.Revision {
			continue
		}
		if err := g.Allows(guards[i]); err != nil {
			return false, err
		}
		g.Revision, again = now, true
	}
	return again, nil
}

// conditionsHold compares the conditions with the current states of their keys.
func (t *Transaction) conditionsHold(current []*store.KeyValue) bool {
	for i, c := range t.Conditions {
		if modRevision(current[i]) != c.ModRevision {
			return false
		}
	}
	return true
}

func modRevision(kv *store.KeyValue) int64 {
	if kv == nil {
		return 0
	}
	return kv.ModRevision
}

// Put adds the object to the transaction.
func (t *Transaction) Put(c store.Condition, obj runtime.Object, stored []byte, lease store.LeaseID) {
	t.Add(c, store.Op{Key: c.Key, Value: stored, Lease: lease})
	t.object = obj
	if t.effect = causes.Changed; c.ModRevision == 0 {
		t.effect = causes.Created
	}
	t.subject = obj
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
