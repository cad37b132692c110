package registry

import (
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
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
	Lanes          *taskpool.Lanes
	// EventTTL is how long Events are kept; a negative one is for ever. Events that are written
	// within LeaseReuse expire together; 0 is one minute.
	EventTTL, LeaseReuse time.Duration
}

// Now returns the current time, truncated to seconds as in metadata.
func (s *Shared) Now() metav1.Time {
	return metav1.NewTime(s.Clock().Truncate(time.Second))
}
