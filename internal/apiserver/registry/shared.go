package registry

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// Shared is what all kinds of one server have in common: their places in stores, the clock, the
// log and the metrics.
type Shared struct {
	Log   *slog.Logger
	Clock func() time.Time
	// Home is the place of all kinds that are not elsewhere. Places has Home first.
	Home           *Place
	Places         []*Place
	placesByPrefix map[string]*Place // by the kind's prefix
	Store          *telemetry.StoreMetrics
	Writes         *telemetry.WriteMetrics
	// Causes records why each write was made; nil records nothing.
	Causes Recorder
	Lanes  *taskpool.Lanes
	// Alone reports that no other server uses the stores now; nil means that none ever does.
	Alone func() bool
	// EventTTL is how long Events are kept; a negative one is for ever. Events that are written
	// within LeaseReuse expire together; 0 is one minute.
	EventTTL, LeaseReuse time.Duration
	// Gates are the feature gates that are on besides the defaults.
	Gates []string
}

// Now returns the current time, truncated to seconds as in metadata.
func (s *Shared) Now() metav1.Time {
	return metav1.NewTime(s.Clock().Truncate(time.Second))
}

// CatchUp waits until the caches of the home store show everything that any server of the store
// has acknowledged before the call. So authorization and admission, which read the caches, know the
// roles, quotas, webhooks and definitions that a client has just written through another server.
//
// A server that is alone on its store has nothing to wait for: each of its own writes has waited.
func (s *Shared) CatchUp(ctx context.Context) error {
	if s.Alone == nil || s.Alone() {
		return nil
	}
	newest, err := s.Home.Store.Revision(ctx)
	if err != nil {
		return wire.StoreError(err)
	}
	return wire.StoreError(s.Home.Cache.WaitFor(ctx, newest))
}
