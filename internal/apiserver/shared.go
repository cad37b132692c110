package apiserver

import (
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// shared is what all kinds of one server have in common: their places in stores, the clock, the
// log and the metrics.
type shared struct {
	log   *slog.Logger
	clock func() time.Time
	// home is the place of all kinds that are not elsewhere; places has home first.
	home      *place
	places    []*place
	elsewhere map[string]*place // by the kind's prefix
	store     *storeMetrics
	writes    *writeMetrics
	lanes     *taskpool.Lanes
	// eventTTL is how long Events are kept; a negative one is for ever. Events that are written
	// within leaseReuse expire together; 0 is one minute.
	eventTTL, leaseReuse time.Duration
}

// now is the time to the second, as metadata has it.
func (s *shared) now() metav1.Time {
	return metav1.NewTime(s.clock().Truncate(time.Second))
}
