package registry

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/store"
)

// leases give Events their time to live. As in upstream's etcd client, one lease serves all Events
// of a period: a lease per Event would cost the store more than the Event.
type leases struct {
	mu         sync.Mutex
	id         store.LeaseID
	reuseUntil time.Time // no new objects get the lease after this time
	used       int
}

const (
	leaseReuse = time.Minute // default of Config.LeaseReuse
	leaseKeys  = 1000
)

// Expired forgets a lease that the store does not have any more, such as after a restore. It
// reports whether the next lease is another one.
func (s *Shared) Expired(r *Registry, id store.LeaseID) bool {
	l := &r.Place.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == 0 {
		return false
	}
	if l.id == id {
		l.id = 0
	}
	return true
}

// Lease returns the store's lease for a new object of the kind; 0 for objects that do not expire.
func (s *Shared) Lease(ctx context.Context, r *Registry) (store.LeaseID, error) {
	if r.Kind.Prefix != "/registry/events" || s.EventTTL < 0 {
		return 0, nil
	}
	l := &r.Place.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	now := s.Clock()
	if l.id != 0 && now.Before(l.reuseUntil) && l.used < leaseKeys {
		l.used++
		return l.id, nil
	}
	reuse := min(cmp.Or(s.LeaseReuse, leaseReuse), s.EventTTL/20)
	id, err := r.Place.Store.Grant(ctx, s.EventTTL+reuse)
	if err != nil {
		return 0, wire.StoreError(err)
	}
	if l.id != 0 {
		s.Store.Leased.Observe(float64(l.used))
	}
	l.id, l.reuseUntil, l.used = id, now.Add(reuse), 1
	return id, nil
}
