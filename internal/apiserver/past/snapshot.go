package past

import (
	"bytes"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/insight/history"
	"github.com/knarr-project/knarr/internal/store"
)

// rewinder is a cache that can show earlier states.
type rewinder interface {
	Rewind(newest *cache.Snapshot, revision int64, states map[string]*store.KeyValue) *cache.Snapshot
}

// Snapshot returns the objects of a kind as they were at a time. With a namespace or a name, only
// objects of that namespace and name need be as they were. warn is told what the snapshot lacks.
func (p *Past) Snapshot(ctx context.Context, r *registry.Registry, namespace, name string, at time.Time, warn func(string)) (*cache.Snapshot, error) {
	if !p.records(r) {
		return nil, notRecorded(r.Resource)
	}
	done, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	reader, err := r.Cache(ctx)
	if err != nil {
		return nil, wire.StoreError(err)
	}
	if err := r.WaitFresh(ctx, reader, ""); err != nil {
		return nil, err
	}
	rewinds, ok := reader.(rewinder)
	if !ok {
		return nil, fmt.Errorf("the cache of %s cannot be rewound", r.Resource)
	}
	revision, err := p.revisionAt(ctx, at)
	if err != nil {
		return nil, err
	}
	// All changes of this snapshot are in the log: the cache tells the log before it applies them.
	newest := reader.Snapshot()
	query := history.Query{After: revision, Kind: r.Kind.Prefix, Namespace: namespace}
	if name != "" {
		query.Key = r.Key(namespace, name)
	}
	states, lost, reduced := map[string]*store.KeyValue{}, 0, 0
	var gap *history.Gap
	query.Gaps = func(g history.Gap) { gap = &g }
	prefix := r.Prefix(namespace)
	err = p.Log.Each(ctx, query, func(c history.Change) bool {
		if _, known := states[c.Key]; known || len(c.Key) <= len(prefix) || c.Key[:len(prefix)] != prefix {
			return true
		}
		states[c.Key] = nil
		if c.Effect == history.Created {
			return true
		}
		state, err := p.unsealed(ctx, c.Key, c.Before)
		if err != nil || c.Lost || len(state) == 0 {
			lost++
			return true
		}
		if c.Omitted {
			reduced++
		}
		states[c.Key] = &store.KeyValue{Key: c.Key, Value: bytes.Clone(state), ModRevision: c.BeforeRevision}
		return true
	})
	if err != nil {
		return nil, err
	}
	if gap != nil {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("the history of objects lacks changes between %s and %s: objects can be shown as they were after that",
			gap.From.Format(time.RFC3339), gap.To.Format(time.RFC3339)))
	}
	if lost > 0 {
		if name != "" {
			return nil, apierrors.NewResourceExpired(fmt.Sprintf("the history of objects does not have %s %q at %s", r.Resource, name, at.UTC().Format(time.RFC3339)))
		}
		warn(fmt.Sprintf("%d objects are missing, because the history of objects does not have their states", lost))
	}
	if reduced > 0 {
		warn(fmt.Sprintf("values of %s that have changed since are not in the history and are shown empty", r.Resource))
	}
	return rewinds.Rewind(newest, revision, states), nil
}
