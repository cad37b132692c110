package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/failpoint"
)

// futureWait is how long a read waits for a future revision, as upstream.
const futureWait = 3 * time.Second

// WaitFresh waits until the cache is as new as the resourceVersion requires.
func (r *Registry) WaitFresh(ctx context.Context, reader cache.Reader, resourceVersion string) error {
	if resourceVersion == "0" || failpoint.Bug("read-before-caught-up") {
		return nil
	}
	if resourceVersion == "" {
		newest, err := r.Place.Store.Revision(ctx)
		if err != nil {
			return wire.StoreError(err)
		}
		if err := r.waitFor(ctx, reader, newest); err != nil {
			r.Reads.stale.Add(1)
			return wire.StoreError(err)
		}
		r.Reads.consistent.Add(1)
		return nil
	}
	revision, err := ParseRevision(resourceVersion)
	if err != nil {
		return err
	}
	return r.WaitFuture(ctx, reader, revision)
}

// waitFor waits until the cache has a revision, and measures the wait.
func (r *Registry) waitFor(ctx context.Context, reader cache.Reader, revision int64) error {
	since := time.Now()
	defer func() { r.Reads.waitHistogram(r).Observe(time.Since(since).Seconds()) }()
	return reader.WaitFor(ctx, revision)
}

// ParseRevision parses a resourceVersion.
func ParseRevision(resourceVersion string) (int64, error) {
	revision, err := strconv.ParseUint(resourceVersion, 10, 63)
	if err != nil {
		return 0, field.Invalid(field.NewPath("resourceVersion"), resourceVersion, err.Error())
	}
	return int64(revision), nil
}

// BadRevision returns upstream's answer to an invalid resourceVersion.
func BadRevision(err error) error {
	return apierrors.NewBadRequest("invalid resource version: " + err.Error())
}

// WaitFuture waits a little for a revision and fails with "Too large resource version" if it does
// not come.
func (r *Registry) WaitFuture(ctx context.Context, reader cache.Reader, revision int64) error {
	bounded, cancel := context.WithTimeout(ctx, futureWait)
	defer cancel()
	err := r.waitFor(bounded, reader, revision)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, cache.ErrFuture)) {
		return tooLarge(revision, reader.Revision())
	}
	return wire.StoreError(err)
}

// tooLarge is upstream's answer to a resourceVersion in the future; clients look for the cause.
func tooLarge(wanted, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

func invalidListOptions(errs field.ErrorList) error {
	return api.Invalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", errs)
}

// Revision returns the revision of the kind's cache.
func (r *Registry) Revision() int64 {
	if reader := r.OpenCache(); reader != nil {
		return reader.Revision()
	}
	return 0
}
