package verb

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// Get returns the named object: its newest state for an empty resourceVersion, any for "0", else
// one at least that new.
func (op *Operation) Get(ctx context.Context, resourceVersion string) (*cache.Entry, error) {
	r := op.Endpoint.Registry
	if !op.At.IsZero() {
		return op.getPast(ctx, resourceVersion)
	}
	reader, err := r.Cache(ctx)
	if err != nil {
		return nil, wire.StoreError(err)
	}
	if err := r.WaitFresh(ctx, reader, resourceVersion); err != nil {
		return nil, err
	}
	entry, ok := reader.Snapshot().Get(r.Key(op.Namespace, op.Name))
	if !ok {
		return nil, apierrors.NewNotFound(r.Resource, op.Name)
	}
	return entry, nil
}

// getPast returns the named object as it was at a time.
func (op *Operation) getPast(ctx context.Context, resourceVersion string) (*cache.Entry, error) {
	r := op.Endpoint.Registry
	if resourceVersion != "" && resourceVersion != "0" {
		return nil, apierrors.NewBadRequest("resourceVersion is not allowed with a time")
	}
	snapshot, err := op.Engine.Past.Snapshot(ctx, r, op.Namespace, op.Name, op.At, op.Warn)
	if err != nil {
		return nil, err
	}
	entry, ok := snapshot.Get(r.Key(op.Namespace, op.Name))
	if !ok {
		return nil, apierrors.NewNotFound(r.Resource, op.Name)
	}
	return entry, nil
}
