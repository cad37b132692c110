package apiserver

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// leases give Events their time to live. As in upstream's etcd client, one lease serves all Events
// of a period: a lease per Event would cost the store more than the Event.
type leases struct {
	mu    sync.Mutex
	id    store.LeaseID
	until time.Time // no new objects get the lease after this time
	used  int
}

const (
	leaseReuse = time.Minute // default of Config.LeaseReuse
	leaseKeys  = 1000
)

// lease returns the store's lease for a new object of the kind; 0 for objects that do not expire.
func (s *shared) lease(ctx context.Context, r *registry) (store.LeaseID, error) {
	if r.kind.Prefix != "/registry/events" || s.eventTTL < 0 {
		return 0, nil
	}
	l := &r.at.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	now := s.clock()
	if l.id != 0 && now.Before(l.until) && l.used < leaseKeys {
		l.used++
		return l.id, nil
	}
	reuse := min(cmp.Or(s.leaseReuse, leaseReuse), s.eventTTL/20)
	id, err := r.at.store.Grant(ctx, s.eventTTL+reuse)
	if err != nil {
		return 0, storeError(err)
	}
	if l.id != 0 {
		s.store.leased.Observe(float64(l.used))
	}
	l.id, l.until, l.used = id, now.Add(reuse), 1
	return id, nil
}
