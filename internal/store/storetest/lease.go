package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// leased writes a key with a lease of its own. If the machine stalls for longer than the lease
// lasts, it retries with a longer lease.
func leased(t *testing.T, s store.Store, key string, ttl time.Duration) (store.LeaseID, time.Duration) {
	t.Helper()
	for ; ; ttl *= 2 {
		began := time.Now()
		id, err := s.Grant(ctx(t), ttl)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Commit(ctx(t), nil, store.Op{Key: key, Value: []byte("leased"), Lease: id})
		switch {
		case err == nil && r.Succeeded:
			return id, ttl
		case !errors.Is(err, store.ErrLeaseNotFound) || time.Since(began) < ttl:
			t.Fatal(r, err)
		}
	}
}

// gone waits for the deletion of the key, and returns its last value.
func gone(t *testing.T, w store.Stream, key string) (last store.KeyValue) {
	t.Helper()
	for {
		b, err := w.Next(ctx(t))
		if err != nil {
			t.Fatalf("no deletion came: %v", err)
		}
		for _, e := range b.Events {
			switch {
			case e.KV.Key != key:
			case e.Type == store.Deleted:
				return last
			default:
				last = e.KV
			}
		}
	}
}

func leaseExpires(t *testing.T, s store.Store) {
	w := watch(t, s, "/p/", 0)
	id, _ := leased(t, s, "/p/leased", time.Second)
	if kv := gone(t, w, "/p/leased"); kv.Lease != id {
		t.Errorf("it was %+v, not of lease %x", kv, id)
	}
	if get(t, s, "/p/leased", 0) != nil {
		t.Error("the key is still there")
	}
	if err := s.KeepAlive(ctx(t), id); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("keeping an expired lease alive: %v", err)
	}
}

func leaseKeptAlive(t *testing.T, s store.Store) {
	for ttl := 2 * time.Second; !outlives(t, s, ttl); {
		ttl *= 2
	}
}

// outlives renews a lease until another lease, which began later and is not renewed, has expired.
// It returns false if the renewal came too late.
func outlives(t *testing.T, s store.Store, ttl time.Duration) bool {
	t.Helper()
	last := time.Now() // the lease starts after this
	id, ttl := leased(t, s, "/kept", ttl)
	leased(t, s, "/left", ttl)
	for over := false; !over; time.Sleep(ttl / 10) {
		over = get(t, s, "/left", 0) == nil
		began := time.Now()
		err := s.KeepAlive(ctx(t), id)
		if time.Since(last) >= ttl {
			return false // it may have expired before the renewal
		}
		if err != nil {
			t.Fatal(err)
		}
		last = began
	}
	kept := get(t, s, "/kept", 0)
	if time.Since(last) >= ttl {
		return false
	}
	if kept == nil {
		t.Error("the key of a lease kept alive is gone")
	}
	return true
}

func leaseRevoked(t *testing.T, s store.Store) {
	id, _ := leased(t, s, "/leased", time.Hour)
	if err := s.Revoke(ctx(t), id); err != nil {
		t.Fatal(err)
	}
	if get(t, s, "/leased", 0) != nil {
		t.Error("the key of a revoked lease is still there")
	}
	if err := s.Revoke(ctx(t), id); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("revoking again: %v", err)
	}
}
