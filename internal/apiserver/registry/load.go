package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/store"
)

// StoredState is the state of an object that a write starts from.
type StoredState struct {
	Obj      runtime.Object // shared, read-only; nil if the object does not exist
	Stored   []byte
	Revision int64
}

// Load returns the object's state from the cache, which may be stale, or from the store if fresh is
// set or the cache does not have it.
func (r *Registry) Load(ctx context.Context, key string, fresh bool) (c StoredState, isFresh bool, err error) {
	if !fresh {
		if reader := r.OpenCache(); reader != nil {
			if e, ok := reader.Snapshot().Get(key); ok && len(e.Stored()) > 0 {
				obj, err := r.ObjectOf(e)
				if err != nil {
					return StoredState{}, false, r.ExplainDecodeError(ctx, key, e.Stored(), r.decodeError(key, err))
				}
				return StoredState{Obj: obj, Stored: e.Stored(), Revision: e.Revision}, false, nil
			}
		}
	}
	kv, _, err := r.Place.Store.Get(ctx, key, 0)
	if err != nil {
		return StoredState{}, true, wire.StoreError(err)
	}
	since := time.Now()
	if c, err = r.FromStore(kv); err != nil {
		err = r.ExplainDecodeError(ctx, key, kv.Value, err)
	}
	audit.From(ctx).AddLatency(audit.Decode, time.Since(since))
	return c, true, err
}

// FromStore decodes a value that a Get or a failed transaction returned.
func (r *Registry) FromStore(kv *store.KeyValue) (StoredState, error) {
	if kv == nil {
		return StoredState{}, nil
	}
	obj, err := r.Decode(kv.Value, kv.ModRevision)
	if err != nil {
		return StoredState{}, r.decodeError(kv.Key, err)
	}
	return StoredState{Obj: obj, Stored: kv.Value, Revision: kv.ModRevision}, nil
}

// decodeError adds the object's key to a decoding error. A conversion webhook's error already
// describes the object.
func (r *Registry) decodeError(key string, err error) error {
	if r.Custom != nil {
		return err
	}
	return fmt.Errorf("%s: %w", key, err)
}

// WaitVisible waits until the kind's cache has the write, so that all readers see it.
func (r *Registry) WaitVisible(ctx context.Context, revision int64) {
	reader := r.OpenCache()
	if reader == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := reader.WaitFor(ctx, revision); err != nil {
		// The write is committed all the same; readers see it a little later.
		r.Shared.Log.Warn("the cache did not reach a write in time", "resource", r.Resource.String(), "revision", revision, "err", err)
	}
}

// NeedsReencryption reports whether an unchanged object must be written again because the store
// would now encrypt it with another key.
func (r *Registry) NeedsReencryption(ctx context.Context, key string) bool {
	sealed, ok := r.Place.Raw.(interface {
		NeedsReencryption(ctx context.Context, key string) (bool, error)
	})
	if !ok {
		return false
	}
	stale, err := sealed.NeedsReencryption(ctx, key)
	if err != nil {
		r.Shared.Log.Warn("cannot check the encryption of an unchanged object, which is not written again", "key", key, "err", err)
	}
	return stale && err == nil
}

// ExplainDecodeError explains a read error. If the stored value could not be decrypted, it says so;
// otherwise it returns err.
func (r *Registry) ExplainDecodeError(ctx context.Context, key string, stored []byte, err error) error {
	if why := r.decryptError(ctx, key, stored); why != nil {
		return apierrors.NewInternalError(why)
	}
	return err
}

// ExplainListError is ExplainDecodeError for a list. It names the first entry that could not be
// decrypted.
func (r *Registry) ExplainListError(ctx context.Context, entries []*cache.Entry, err error) error {
	for _, e := range entries {
		if why := r.decryptError(ctx, e.Key, e.Stored()); why != nil {
			return apierrors.NewInternalError(fmt.Errorf("unable to transform key %q: %w", store.Stored(r.Place.Store, e.Key), why))
		}
	}
	return err
}

// decryptError returns why a stored value cannot be decrypted; nil if it can, or is not encrypted.
func (r *Registry) decryptError(ctx context.Context, key string, stored []byte) error {
	if sealed, ok := r.Place.Raw.(interface {
		DecryptError(ctx context.Context, key string, value []byte) error
	}); ok {
		return sealed.DecryptError(ctx, key, stored)
	}
	return nil
}

// EncryptedStore is a store that encrypts some objects (package encryption).
type EncryptedStore interface {
	// Health reports whether the key management services work.
	Health(ctx context.Context) error
	// OnRepair sets the function to call when the objects below a prefix have become readable
	// again.
	OnRepair(again func(ctx context.Context, prefix string) error)
	Collectors() []prometheus.Collector
}
