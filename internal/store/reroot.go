package store

import (
	"context"
	"errors"
	"io"
	"strings"
)

// Reroot returns a store that maps one key prefix to another. For the prefixes /registry and to,
// the caller's /registry/pods is stored as to + /pods. Keys with another prefix stay as they are.
func Reroot(under Store, from, to string) Store {
	if from == to {
		return under
	}
	return &rerooted{under, from, to}
}

// Stored returns the engine's key for the key of s.
func Stored(s Store, key string) string {
	if r, ok := s.(interface{ Stored(key string) string }); ok {
		return r.Stored(key)
	}
	return key
}

type rerooted struct {
	Store
	from, to string
}

// Stored returns the engine's key.
func (r *rerooted) Stored(key string) string { return move(key, r.from, r.to) }

// move replaces the prefix of a key; a key without that prefix stays as it is.
func move(key, from, to string) string {
	if rest, ok := strings.CutPrefix(key, from); ok {
		return to + rest
	}
	return key
}

func (r *rerooted) named(kv *KeyValue) { kv.Key = move(kv.Key, r.to, r.from) }

func (r *rerooted) Get(ctx context.Context, key string, revision int64) (*KeyValue, int64, error) {
	kv, at, err := r.Store.Get(ctx, r.Stored(key), revision)
	if kv != nil {
		r.named(kv)
	}
	return kv, at, err
}

func (r *rerooted) Range(ctx context.Context, prefix string, opts RangeOptions) (RangeResult, error) {
	opts.From = r.Stored(opts.From)
	res, err := r.Store.Range(ctx, r.Stored(prefix), opts)
	for i := range res.KVs {
		r.named(&res.KVs[i])
	}
	return res, err
}

func (r *rerooted) Commit(ctx context.Context, conditions []Condition, ops ...Op) (TxnResult, error) {
	// Copies, since the caller may retry with the originals.
	moved, writes := make([]Condition, len(conditions)), make([]Op, len(ops))
	for i, c := range conditions {
		c.Key = r.Stored(c.Key)
		moved[i] = c
	}
	for i, op := range ops {
		op.Key = r.Stored(op.Key)
		writes[i] = op
	}
	res, err := r.Store.Commit(ctx, moved, writes...)
	for _, kv := range res.Current {
		if kv != nil {
			r.named(kv)
		}
	}
	return res, err
}

func (r *rerooted) Watch(ctx context.Context, prefix string, after int64) (Stream, error) {
	s, err := r.Store.Watch(ctx, r.Stored(prefix), after)
	if err != nil {
		return nil, err
	}
	return &rerootedStream{s, r}, nil
}

// Snapshot implements Snapshotter: it copies everything, with the engine's own keys.
func (r *rerooted) Snapshot(ctx context.Context, w io.Writer) error {
	if s, ok := r.Store.(Snapshotter); ok {
		return s.Snapshot(ctx, w)
	}
	return errors.New("this store cannot make snapshots")
}

type rerootedStream struct {
	Stream
	store *rerooted
}

func (s *rerootedStream) Next(ctx context.Context) (Batch, error) {
	b, err := s.Stream.Next(ctx)
	for i := range b.Events {
		s.store.named(&b.Events[i].KV)
	}
	return b, err
}
