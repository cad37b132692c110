package registry

import (
	"context"
	"errors"
	"slices"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/store"
)

// commitBoth commits the transaction and the one beside it at one revision. done is false if the
// other one is in the way: nothing was written, and the transaction is to be committed alone.
func (t *Transaction) commitBoth(ctx context.Context) (res store.TxnResult, done bool, err error) {
	other := t.Beside
	if other.Place != t.Place {
		return res, false, nil
	}
	own := t.allConditions()
	res, err = t.Place.Store.Commit(ctx, slices.Concat(own, other.allConditions()), slices.Concat(t.Ops, other.Ops)...)
	switch {
	case errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrNoSpace), errors.Is(err, store.ErrLeaseNotFound):
		return res, false, nil // the transaction alone may still fit
	case err != nil:
		return res, true, wire.CommitError(err)
	case res.Succeeded:
		t.record(ctx, res.Revision)
		other.record(ctx, res.Revision)
		return res, true, nil
	case t.conditionsHold(res.Current):
		return res, false, nil
	}
	res.Current = res.Current[:len(t.Conditions):len(t.Conditions)]
	if t.Refresh != nil && len(t.Conditions) > 1 {
		t.Refresh(ctx, res.Revision) // before the write is tried again
	}
	return res, true, nil
}
