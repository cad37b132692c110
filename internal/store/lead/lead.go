package lead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// TTL is the default time to live of a leader that stops to answer. With it, the next leader leads
// within 5 s: the killed leader may have renewed its lease just before (2 s), etcd looks for
// expired leases every 500 ms, and if etcd's own leader died too, electing the next takes up to two
// election timeouts and extends all leases by one. Two seconds is the minimum of etcd's default
// settings.
const TTL = 2 * time.Second

// AloneTTL is the default time to live of the lease of a leader that is alone. No candidate waits
// for it, so rare renewals let an idle process sleep. When another candidate begins to wait, the
// leader makes its lease a short one.
const AloneTTL = time.Minute

// Candidate is a process that takes part in an election.
type Candidate struct {
	Store store.Store
	// Key is the prefix of the election's keys.
	Key  string
	Self Holder
	// TTL and, while this process is alone, AloneTTL are the leases' times to live; 0 means the
	// constants.
	TTL, AloneTTL time.Duration
	// Alone reports whether no other candidate can exist, since this process is the only member of
	// the store. A candidate that is alone leads at once, and does not give up its term because its
	// lease could not be renewed: its disk may just be slow. May be nil.
	Alone func() bool
	// Places are further stores that the leader writes to.
	Places []store.Store
	Log    *slog.Logger // nil is slog.Default()
}

// Holder identifies a leader.
type Holder struct {
	// Name is for people.
	Name string `json:"name"`
	// Home identifies what at most one process at a time can use, such as a data folder. A process
	// that starts takes over from the last process of its home without waiting for a lease.
	Home string `json:"home"`
	// Process is unique.
	Process string `json:"process"`
	// Term orders the terms in all stores: nanoseconds since 1970, but always more than before.
	Term int64 `json:"term"`
}

// Since returns when the holder's term began, by its own clock.
func (h Holder) Since() time.Time { return time.Unix(0, h.Term) }

// Term is the time during which this process leads.
type Term struct {
	Holder
	// Previous is the leader before; nil if there was none.
	Previous *Holder
	// Revision is the revision at which the term began. No earlier leader writes after it.
	Revision int64
	// Fence ties writes to the term, in the store and in the places.
	Fence *store.Fence
}

var (
	errOther   = errors.New("another process leads")
	errExpired = errors.New("the lease could not be renewed in time")
)

// ttl returns the time to live that a lease should have now.
func (c *Candidate) ttl() time.Duration {
	if c.Alone() {
		return max(c.TTL, c.AloneTTL)
	}
	return c.TTL
}

func (c *Candidate) holderKey() string { return c.Key + "/holder" }
func (c *Candidate) termKey() string   { return c.Key + "/term" }

// waitingKey names the candidate that began to wait last. The leader watches it.
func (c *Candidate) waitingKey() string { return c.Key + "/waiting" }

// Run waits until this process leads, then calls serve with a context that ends with the term, and
// waits for serve to return. It does so again after each lost term, until ctx ends. Then it hands
// over: the next leader need not wait for the lease. If serve returns while the term lasts, Run
// hands over and returns serve's error.
func (c Candidate) Run(ctx context.Context, serve func(ctx context.Context, t *Term) error) error {
	if c.TTL == 0 {
		c.TTL = TTL
	}
	if c.AloneTTL == 0 {
		c.AloneTTL = AloneTTL
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Alone == nil {
		c.Alone = func() bool { return false }
	}
	for first := true; ; first = false {
		r, err := c.campaign(ctx, first)
		if err != nil {
			return nil // ctx has ended
		}
		if ended, err := r.run(ctx, serve); ended {
			return err
		}
	}
}

// standing is the state of the election's keys.
type standing struct {
	holder, term *store.KeyValue
	leader       *Holder // of the holder key; nil if the key does not exist
	last         *Holder // of the term key
	revision     int64
}

func (c *Candidate) read(ctx context.Context) (s standing, err error) {
	res, err := c.Store.Range(ctx, c.Key+"/", store.RangeOptions{})
	if err != nil {
		return s, err
	}
	s.revision = res.Revision
	for i := range res.KVs {
		kv := &res.KVs[i]
		if kv.Key == c.waitingKey() {
			continue
		}
		var h Holder
		if err := json.Unmarshal(kv.Value, &h); err != nil {
			c.Log.Error("the record of a leader cannot be read; replacing it", "key", kv.Key, "err", err)
		}
		switch kv.Key {
		case c.holderKey():
			s.holder, s.leader = kv, &h
		case c.termKey():
			s.term, s.last = kv, &h
		}
	}
	return s, nil
}

func revisionOf(kv *store.KeyValue) int64 {
	if kv == nil {
		return 0
	}
	return kv.ModRevision
}

// campaign waits until this process has won a term.
func (c *Candidate) campaign(ctx context.Context, first bool) (*reign, error) {
	const shortest = 50 * time.Millisecond
	pause, announced := shortest, false
	for {
		s, err := c.read(ctx)
		if err == nil {
			var r *reign
			if c.mayTake(&s, first) {
				r, err = c.take(ctx, &s)
			} else {
				c.Log.Debug("another process leads", "election", c.Key, "leader", s.leader.Name)
				if !announced {
					_, err = c.Store.Commit(ctx, nil, store.Op{Key: c.waitingKey(), Value: []byte(c.Self.Name)})
					announced = err == nil
				}
				if err == nil {
					err = c.await(ctx, &s)
				}
			}
			if r != nil {
				return r, nil
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil { // the keys have changed
			pause = shortest
			continue
		}
		c.Log.Warn("cannot take part in the election of a leader; trying again", "election", c.Key, "err", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// mayTake reports whether the leader is gone for certain, or is this process itself. Taking over
// from a living leader would be safe too, since its writes are fenced, but its work would be
// interrupted.
func (c *Candidate) mayTake(s *standing, first bool) bool {
	return s.leader == nil || s.leader.Process == c.Self.Process || first && s.leader.Home == c.Self.Home || c.Alone()
}

// lookAgain is the interval at which a waiting candidate reads the keys although it watches them:
// it may take longer until the client of an outside etcd notices that its connection is dead.
const lookAgain = 10 * time.Second

// await returns when the holder key has changed, or after lookAgain.
func (c *Candidate) await(ctx context.Context, s *standing) error {
	limited, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	err := c.follow(limited, s.revision, func(e store.Event) (done bool) { return e.KV.Key == c.holderKey() })
	if limited.Err() != nil {
		return ctx.Err()
	}
	return err
}

// follow calls fn with each change of the election's keys after the revision, until fn returns
// true.
func (c *Candidate) follow(ctx context.Context, revision int64, fn func(store.Event) (done bool)) error {
	stream, err := c.Store.Watch(ctx, c.Key+"/", revision)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		b, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range b.Events {
			if fn(e) {
				return nil
			}
		}
	}
}

// take tries to begin a term. It returns nil without an error if another candidate was faster.
func (c *Candidate) take(ctx context.Context, s *standing) (*reign, error) {
	t := &Term{Holder: c.Self, Previous: s.last}
	t.Term = time.Now().UnixNano()
	if s.last != nil {
		t.Term = max(t.Term, s.last.Term+1)
	}
	// A request that etcd's leader took with it when it stopped is never answered. Try again soon.
	ctx, cancel := context.WithTimeout(ctx, max(c.TTL/2, time.Second))
	defer cancel()
	r := &reign{Candidate: c, term: t, look: make(chan struct{}, 1)}
	ttl := c.ttl()
	r.granted.Store(int64(ttl))
	r.renewed.Store(now())
	id, err := c.Store.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(t.Holder)
	if err != nil {
		return nil, fmt.Errorf("encode the record of the leader: %w", err)
	}
	res, err := c.Store.Commit(ctx,
		[]store.Condition{{Key: c.termKey(), ModRevision: revisionOf(s.term)}, {Key: c.holderKey(), ModRevision: revisionOf(s.holder)}},
		store.Op{Key: c.termKey(), Value: value}, store.Op{Key: c.holderKey(), Value: value, Lease: id})
	if err != nil || !res.Succeeded {
		// If the commit's outcome is unknown, the next read shows it.
		_ = c.Store.Revoke(ctx, id)
		return nil, err
	}
	t.Revision = res.Revision
	r.lease, r.value = id, value
	return r, nil
}
