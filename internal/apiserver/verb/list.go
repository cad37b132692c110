package verb

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/failpoint"
)

// List answers from one snapshot: the newest, any, one at least as new as a resourceVersion, or
// exactly that of a resourceVersion or continue token.
func (op *Operation) List(ctx context.Context, req *registry.ListRequest) (*registry.Page, error) {
	r := op.Endpoint.Registry
	reader, err := r.Cache(ctx)
	if err != nil {
		return nil, wire.StoreError(err)
	}
	prefix := r.Prefix(op.Namespace)
	from, limit := prefix, req.Opts.Limit
	var snapshot *cache.Snapshot
	switch rv := req.Opts.ResourceVersion; {
	case !op.At.IsZero():
		limit = 0 // another page might be beyond the log's reach
		snapshot, err = op.snapshotPast(ctx, req)
	case req.Opts.Continue != "" && rv != "" && rv != "0":
		err = apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	case req.Opts.Continue != "":
		snapshot, from, err = op.snapshotOfToken(ctx, reader, req, prefix)
	case rv == "0" && req.Opts.ResourceVersionMatch != metav1.ResourceVersionMatchExact:
		limit = 0 // as upstream: a list of any state ignores the limit
		snapshot = reader.Snapshot()
	case rv != "" && rv != "0" && (req.Opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || req.Opts.ResourceVersionMatch == "" && limit > 0):
		snapshot, err = op.snapshotAt(ctx, reader, rv)
	default:
		if err = r.WaitFresh(ctx, reader, rv); err == nil {
			snapshot = reader.Snapshot()
		}
	}
	if invalid := (*field.Error)(nil); errors.As(err, &invalid) {
		err = registry.BadRevision(err)
	}
	if err != nil {
		return nil, err
	}
	p, err := op.Collect(snapshot, req, prefix, from, limit)
	if err != nil {
		return nil, err
	}
	r.Reads.Lists.Add(1)
	r.Reads.Fetched.Add(uint64(p.Scanned))
	r.Reads.Returned.Add(uint64(len(p.Entries)))
	return p, nil
}

// Collect takes the matching objects from the snapshot, up to the limit.
func (op *Operation) Collect(s *cache.Snapshot, req *registry.ListRequest, prefix, from string, limit int64) (*registry.Page, error) {
	p := &registry.Page{Revision: s.Revision(), Changed: s.Changed()}
	everything := req.Labels.Empty() && req.Fields.Empty()
	if everything && limit == 0 && from == prefix {
		p.CompletePrefix = prefix
	}
	if limit == 0 && s.Len() >= registry.ManyObjects {
		p.Entries = *registry.EntriesPool.Get().(*[]*cache.Entry)
	}
	if everything && limit == 0 && op.Namespace == "" && cap(p.Entries) < s.Len() {
		p.Entries = make([]*cache.Entry, 0, s.Len())
	}
	if key, ok := op.singleKey(req); ok && limit == 0 {
		e, found := s.Get(key)
		if !found {
			return p, nil
		}
		match, err := req.Matches(e)
		if match {
			p.Entries, p.Scanned = append(p.Entries, e), 1
		}
		return p, err
	}
	more, rest := false, int64(0)
	var err error
	turns := op.Endpoint.Shared.TurnsFor(s.Len())
	defer turns.End()
	s.Ascend(prefix, from, func(e *cache.Entry) bool {
		turns.Step()
		p.Scanned++
		if limit > 0 && int64(len(p.Entries)) == limit {
			if !everything {
				// As upstream, only the next page finds out whether another object matches.
				more = true
				return false
			}
			more = true
			rest++
			return true
		}
		match := everything
		if !match {
			match, err = req.Matches(e)
		}
		if match {
			p.Entries = append(registry.Grown(p.Entries, s.Len()), e)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	if more {
		last := p.Entries[len(p.Entries)-1].Key
		p.Next = wire.EncodeContinue(last, prefix, s.Revision())
		if everything {
			p.Remaining = &rest
		}
	}
	return p, nil
}

// singleKey returns the key of the only object that the field selector can match.
func (op *Operation) singleKey(req *registry.ListRequest) (string, bool) {
	if req.Fields.Empty() {
		return "", false
	}
	name, ok := req.Fields.RequiresExactMatch("metadata.name")
	if !ok || name == "" || op.Endpoint.Kind.Namespaced && op.Namespace == "" {
		return "", false
	}
	return op.Endpoint.Key(op.Namespace, name), true
}

// snapshotAt returns the snapshot at a resourceVersion.
func (op *Operation) snapshotAt(ctx context.Context, reader cache.Reader, resourceVersion string) (*cache.Snapshot, error) {
	revision, err := registry.ParseRevision(resourceVersion)
	if err != nil {
		return nil, err
	}
	if err := op.Endpoint.WaitFuture(ctx, reader, revision); err != nil {
		return nil, err
	}
	s, err := reader.At(ctx, revision)
	if errors.Is(err, cache.ErrTooOld) {
		return nil, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	if err != nil {
		return nil, wire.StoreError(err)
	}
	return s, nil
}

// snapshotPast returns the objects as they were at a time.
func (op *Operation) snapshotPast(ctx context.Context, req *registry.ListRequest) (*cache.Snapshot, error) {
	if rv := req.Opts.ResourceVersion; rv != "" && rv != "0" || req.Opts.Continue != "" {
		return nil, apierrors.NewBadRequest("neither resourceVersion nor continue is allowed with a time")
	}
	return op.Engine.Past.Snapshot(ctx, op.Endpoint.Registry, op.Namespace, "", op.At, op.Warn)
}

// snapshotOfToken returns the snapshot of a continue token and the key to continue from.
func (op *Operation) snapshotOfToken(ctx context.Context, reader cache.Reader, req *registry.ListRequest, prefix string) (*cache.Snapshot, string, error) {
	from, revision, err := wire.DecodeContinue(req.Opts.Continue, prefix)
	if err != nil {
		return nil, "", apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	}
	if revision <= 0 {
		// An inconsistent token continues in the newest state.
		if err := op.Endpoint.WaitFresh(ctx, reader, ""); err != nil {
			return nil, "", err
		}
		return reader.Snapshot(), from, nil
	}
	if failpoint.Bug("page-of-newest-state") {
		return reader.Snapshot(), from, nil
	}
	s, err := reader.At(ctx, revision)
	if errors.Is(err, cache.ErrTooOld) {
		return nil, "", wire.ExpiredContinue(from, prefix)
	}
	if err != nil {
		return nil, "", wire.StoreError(err)
	}
	return s, from, nil
}
