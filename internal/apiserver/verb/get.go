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
