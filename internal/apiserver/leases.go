package apiserver

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// leases gives Events their time to live. One lease serves all Events of a while, as upstream's etcd client does it:
// a lease per Event would cost the store more than the Event.
type leases struct {
	mu    sync.Mutex
	id    store.LeaseID
	until time.Time // after which the lease is not given out any more
	used  int
}

const (
	leaseReuse = time.Minute // unless the configuration says otherwise
	leaseKeys  = 1000
)

// lease is the store's lease for new objects of the kind; 0 for those that stay.
func (s *Server) lease(ctx context.Context, r *registry) (store.LeaseID, error) {
	if r.kind.Prefix != "/registry/events" || s.cfg.EventTTL < 0 {
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
	reuse := min(cmp.Or(s.cfg.LeaseReuse, leaseReuse), s.cfg.EventTTL/20)
	id, err := r.at.store.Grant(ctx, s.cfg.EventTTL+reuse)
	if err != nil {
		return 0, storeError(err)
	}
	if l.id != 0 {
		s.metrics.store.leased.Observe(float64(l.used))
	}
	l.id, l.until, l.used = id, now.Add(reuse), 1
	return id, nil
}
