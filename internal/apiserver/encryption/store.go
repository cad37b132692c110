package encryption

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/store"
)

// Store encrypts the values of another store.
type Store struct {
	store.Store
	path  string
	log   *slog.Logger
	rules atomic.Pointer[rules]
	// builtin says which resource lies below a prefix.
	builtin map[string]schema.GroupResource

	end  context.CancelFunc
	done sync.WaitGroup
}

// Wrap encrypts what the configuration file names. With reload, changes of the file count without a restart.
func Wrap(ctx context.Context, under store.Store, path string, reload bool, log *slog.Logger) (*Store, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{Store: under, path: path, log: log, builtin: map[string]schema.GroupResource{}, end: cancel}
	for _, k := range api.Kinds() {
		if !k.Virtual {
			if _, ok := s.builtin[k.Prefix]; !ok {
				s.builtin[k.Prefix] = k.GroupResource()
			}
		}
	}
	r, err := load(ctx, path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	s.rules.Store(r)
	for name, p := range r.kms {
		if err := p.refresh(ctx); err != nil {
			log.Warn("a key management service does not answer; nothing can be encrypted until it does", "kms", name, "err", err)
		}
	}
	if reload || len(r.kms) > 0 {
		s.done.Go(func() { s.follow(ctx, reload) })
	}
	return s, nil
}

// followEvery is how often the file and the plugins are looked at.
const followEvery = 10 * time.Second

func (s *Store) follow(ctx context.Context, reload bool) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	seen, asked := modified(s.path), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := modified(s.path); reload && now != seen {
			seen = now
			s.reload(ctx)
			asked = time.Time{}
		}
		if time.Since(asked) < pluginAskEvery {
			continue
		}
		asked = time.Now()
		for name, p := range s.rules.Load().kms {
			if err := p.refresh(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("a key management service does not answer", "kms", name, "err", err)
			}
		}
	}
}

func modified(path string) time.Time {
	if info, err := os.Stat(path); err == nil {
		return info.ModTime()
	}
	return time.Time{}
}

// reload takes the changed file. A file that can not be used changes nothing.
func (s *Store) reload(ctx context.Context) {
	before := s.rules.Load()
	next, err := load(ctx, s.path, before)
	if err != nil {
		s.log.Error("the changed encryption configuration is not used", "err", err)
		return
	}
	for name, p := range next.kms {
		if before.kms[name] == p {
			continue
		}
		if err := p.refresh(ctx); err != nil {
			s.log.Error("the changed encryption configuration is not used: a key management service does not answer", "kms", name, "err", err)
			p.end()
			return
		}
	}
	s.rules.Store(next)
	s.log.Info("encryption configuration reloaded")
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.end()
	s.done.Wait()
	for _, p := range s.rules.Load().kms {
		p.end()
	}
	return s.Store.Close()
}

// Snapshot implements store.Snapshotter: the copy is as encrypted as the store.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) error {
	if under, ok := s.Store.(store.Snapshotter); ok {
		return under.Snapshot(ctx, w)
	}
	return errors.New("this store makes no snapshots")
}

// ruleOf is the rule for a key: /registry/RESOURCE/..., /registry/GROUP/RESOURCE/... of custom resources.
func (s *Store) ruleOf(key string) *rule {
	r := s.rules.Load()
	if gr, ok := s.resourceOf(key); ok {
		return r.find(gr)
	}
	return nil
}

func (s *Store) resourceOf(key string) (schema.GroupResource, bool) {
	rest, ok := strings.CutPrefix(key, "/registry/")
	if !ok {
		return schema.GroupResource{}, false
	}
	first, rest, _ := strings.Cut(rest, "/")
	if gr, ok := s.builtin["/registry/"+first]; ok {
		return gr, true
	}
	second, _, ok := strings.Cut(rest, "/")
	if gr, found := s.builtin["/registry/"+first+"/"+second]; found {
		return gr, true
	}
	return schema.GroupResource{Group: first, Resource: second}, ok
}

func (s *Store) decrypt(ctx context.Context, kv *store.KeyValue) {
	if !encrypted(kv.Value) {
		return
	}
	r := s.ruleOf(kv.Key)
	if r == nil {
		s.log.Error("an encrypted object has no provider in the configuration", "key", kv.Key)
		return
	}
	plain, _, err := r.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		// The object can not be decoded, which whoever asks for it is told; all others are served.
		s.log.Error("an object can not be decrypted", "key", kv.Key, "err", err)
		return
	}
	kv.Value = plain
}

// Stale tells whether the key's value would be stored differently if it was written now.
func (s *Store) Stale(ctx context.Context, key string) (bool, error) {
	r := s.ruleOf(key)
	if r == nil {
		return false, nil
	}
	kv, _, err := s.Store.Get(ctx, key, 0)
	if err != nil || kv == nil {
		return false, err
	}
	_, stale, err := r.TransformFromStorage(ctx, kv.Value, value.DefaultContext(key))
	if errors.Is(err, errNoProvider) && !encrypted(kv.Value) {
		return true, nil // from the time before encryption, which no provider speaks of any more
	}
	return stale, err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string, revision int64) (*store.KeyValue, int64, error) {
	kv, at, err := s.Store.Get(ctx, key, revision)
	if kv != nil {
		s.decrypt(ctx, kv)
	}
	return kv, at, err
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, prefix string, opts store.RangeOptions) (store.RangeResult, error) {
	res, err := s.Store.Range(ctx, prefix, opts)
	for i := range res.KVs {
		s.decrypt(ctx, &res.KVs[i])
	}
	return res, err
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	ops = slices.Clone(ops) // the caller's stay as they are, for another attempt
	for i := range ops {
		if ops[i].Delete {
			continue
		}
		r := s.ruleOf(ops[i].Key)
		if r == nil {
			continue
		}
		sealed, err := r.TransformToStorage(ctx, ops[i].Value, value.DefaultContext(ops[i].Key))
		if err != nil {
			return store.TxnResult{}, fmt.Errorf("encrypt %s: %w", ops[i].Key, err)
		}
		ops[i].Value = sealed
	}
	res, err := s.Store.Commit(ctx, conditions, ops...)
	for _, kv := range res.Current {
		if kv != nil {
			s.decrypt(ctx, kv)
		}
	}
	return res, err
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (store.Stream, error) {
	stream, err := s.Store.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	return &decrypting{Stream: stream, store: s}, nil
}

type decrypting struct {
	store.Stream
	store *Store
}

func (d *decrypting) Next(ctx context.Context) (store.Batch, error) {
	batch, err := d.Stream.Next(ctx)
	for i := range batch.Events {
		d.store.decrypt(ctx, &batch.Events[i].KV)
	}
	return batch, err
}
