package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrFenced means that a write was refused because its writer's term as leader has ended. A retry
// cannot succeed.
var ErrFenced = errors.New("the term of the writer as leader has ended")

// Fence ties the writes of a leader to its term (ADR 0070). The election changes a key when another
// leader's term begins, so a write on condition of that key's revision is refused from then on.
type Fence struct {
	// Conditions hold during the term: one for each store that the leader writes to, by place.
	Conditions []Condition
	// Lost is called, maybe more than once, when a condition does not hold any more. It must not
	// block. May be nil.
	Lost func()
}

type fenceKey struct{}

// WithFence returns a context whose commits, in stores that honour fences, carry the fence.
func WithFence(ctx context.Context, f *Fence) context.Context {
	return context.WithValue(ctx, fenceKey{}, f)
}

// FenceOf returns the fence of a context; nil means none.
func FenceOf(ctx context.Context) *Fence {
	f, _ := ctx.Value(fenceKey{}).(*Fence)
	return f
}

// Check returns ErrFenced if the term has ended, as a linearizable read of s shows it. Effects that
// no store commits, such as requests to another server, can only be checked before they happen.
func (f *Fence) Check(ctx context.Context, s Store, place int) error {
	c, err := f.on(place)
	if err != nil {
		return err
	}
	kv, _, err := s.Get(ctx, c.Key, 0)
	if err != nil {
		return err
	}
	if !c.holds(kv) {
		return f.refuse(c)
	}
	return nil
}

func (f *Fence) on(place int) (Condition, error) {
	if place >= len(f.Conditions) {
		return Condition{}, fmt.Errorf("the fence has %d conditions, and none for place %d", len(f.Conditions), place)
	}
	return f.Conditions[place], nil
}

func (f *Fence) refuse(c Condition) error {
	if f.Lost != nil {
		f.Lost()
	}
	return fmt.Errorf("%w: %s has changed since revision %d", ErrFenced, c.Key, c.ModRevision)
}

// holds reports whether the key's state meets the condition.
func (c Condition) holds(kv *KeyValue) bool {
	if kv == nil {
		return c.ModRevision == 0
	}
	return kv.ModRevision == c.ModRevision
}

// Fenced returns a store that honours the fences of contexts: it commits a write only if the
// fence's condition for this place holds too, and returns ErrFenced if it does not.
func Fenced(under Store, place int) Store { return &fenced{under, place} }

type fenced struct {
	Store
	place int
}

// Stored returns the engine's key.
func (s *fenced) Stored(key string) string { return Stored(s.Store, key) }

// Commit implements Store. It adds one comparison to the transaction, and no round trip.
func (s *fenced) Commit(ctx context.Context, conditions []Condition, ops ...Op) (TxnResult, error) {
	f := FenceOf(ctx)
	if f == nil || len(ops) == 0 {
		return s.Store.Commit(ctx, conditions, ops...)
	}
	c, err := f.on(s.place)
	if err != nil {
		return TxnResult{}, err
	}
	n := len(conditions)
	res, err := s.Store.Commit(ctx, append(slices.Clip(conditions), c), ops...)
	if err != nil || res.Succeeded {
		return res, err
	}
	if !c.holds(res.Current[n]) {
		return TxnResult{}, f.refuse(c)
	}
	res.Current = res.Current[:n] // an ordinary condition did not hold
	return res, nil
}
