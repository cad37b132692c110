package encryption

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/reload"
	"github.com/knarr-project/knarr/internal/store"
)

// Store encrypts the values of another store.
type Store struct {
	store.Store
	*keyring
	sharesKeyring bool // uses another Store's keyring, which that one closes
}

// keyring is the configuration with which values are encrypted.
type keyring struct {
	log   *slog.Logger
	rules atomic.Pointer[rules]
	// builtin maps a key prefix to its resource.
	builtin map[string]schema.GroupResource

	// end stops the goroutine of follow, and the connections to plugins.
	end  context.CancelFunc
	done sync.WaitGroup

	// using is held for reading while a write is encrypted and committed, and for writing while Use
	// replaces the rules.
	using sync.RWMutex

	file     *reload.File // belongs to the goroutine that calls step: follow
	changing sync.Mutex   // guards retired, and is held while rules are replaced
	retired  []retired

	repair
}

// Wrap encrypts the resources that the configuration file names. With reload, changes of the file
// take effect without a restart.
func Wrap(ctx context.Context, under store.Store, path string, reload bool, log *slog.Logger) (*Store, error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s, err := open(life, under, path, log)
	if err != nil {
		end()
		return nil, err
	}
	s.end = end
	if r := s.rules.Load(); reload || len(r.kms) > 0 {
		s.done.Go(func() { s.follow(life, reload) })
	}
	return s, nil
}

// open is Wrap without following the file and the plugins. The plugins' connections live as long as
// ctx.
func open(ctx context.Context, under store.Store, path string, log *slog.Logger) (*Store, error) {
	s := &Store{Store: under, keyring: &keyring{log: log, end: func() {}, builtin: map[string]schema.GroupResource{}}}
	s.broken, s.wake = map[string]brokenValue{}, make(chan struct{}, 1)
	for _, k := range api.Kinds() {
		if !k.Virtual {
			if _, ok := s.builtin[k.Prefix]; !ok {
				s.builtin[k.Prefix] = k.GroupResource()
			}
		}
	}
	var err error
	s.file, err = reload.Open(ctx, "encryption", path, log, func(ctx context.Context, data []byte) error {
		if s.rules.Load() != nil {
			return s.replace(ctx, data)
		}
		r, err := load(ctx, data, nil)
		if err != nil {
			return fmt.Errorf("encryption configuration %s: %w", path, err)
		}
		s.rules.Store(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, p := range s.rules.Load().kms {
		if err := p.refresh(ctx); err != nil {
			log.Warn("a key management service does not answer; nothing can be encrypted until it does", "kms", p.config.Name, "err", err)
		}
	}
	return s, nil
}

// Beside returns a Store that encrypts another store with the same keyring. It must be closed
// before s.
func (s *Store) Beside(under store.Store) *Store {
	return &Store{Store: under, keyring: s.keyring, sharesKeyring: true}
}

// Close implements store.Store.
func (s *Store) Close() error {
	if !s.sharesKeyring {
		s.end()
		s.done.Wait()
	}
	return s.Store.Close()
}

// Snapshot implements store.Snapshotter: the copy is as encrypted as the store.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) error {
	if under, ok := s.Store.(store.Snapshotter); ok {
		return under.Snapshot(ctx, w)
	}
	return errors.New("this store does not support snapshots")
}

// ruleOf returns the rule for a key: /registry/RESOURCE/..., or /registry/GROUP/RESOURCE/... for
// custom resources.
func (s *Store) ruleOf(key string) *rule {
	r := s.rules.Load()
	if gr, _, ok := s.resourceOf(key); ok {
		return r.find(gr)
	}
	return nil
}

// withResource adds the key's resource to ctx, for the metrics of the libraries that transform
// values.
func (s *Store) withResource(ctx context.Context, key string) context.Context {
	gr, _, _ := s.resourceOf(key)
	return request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, APIGroup: gr.Group, Resource: gr.Resource})
}

// resourceOf returns the resource of a key, and the prefix of all its objects.
func (s *Store) resourceOf(key string) (gr schema.GroupResource, prefix string, ok bool) {
	rest, ok := strings.CutPrefix(key, "/registry/")
	if !ok {
		return gr, "", false
	}
	first, rest, _ := strings.Cut(rest, "/")
	prefix = "/registry/" + first
	if gr, ok := s.builtin[prefix]; ok {
		return gr, prefix, true
	}
	second, _, ok := strings.Cut(rest, "/")
	prefix += "/" + second
	if gr, found := s.builtin[prefix]; found {
		return gr, prefix, true
	}
	return schema.GroupResource{Group: first, Resource: second}, prefix, ok
}

// valueContext returns the key's location in the store, to which some ciphers bind the value.
func (s *Store) valueContext(key string) value.Context { return value.DefaultContext(s.Stored(key)) }

// Stored returns the location of a key: store.Stored.
func (s *Store) Stored(key string) string { return store.Stored(s.Store, key) }

// decrypt decrypts the value in place. It returns only errors that may pass; a value that can never
// be decrypted stays as it is.
func (s *Store) decrypt(ctx context.Context, kv *store.KeyValue) error {
	if !encrypted(kv.Value) {
		return nil
	}
	r := s.ruleOf(kv.Key)
	if r == nil {
		s.log.Error("an encrypted object has no provider in the configuration", "key", kv.Key)
		return nil
	}
	plain, _, err := r.TransformFromStorage(s.withResource(ctx, kv.Key), kv.Value, s.valueContext(kv.Key))
	switch {
	case err == nil:
		kv.Value = plain
	case temporary(err) || ctx.Err() != nil:
		return fmt.Errorf("decrypt %s: %w: %w", kv.Key, store.ErrUnavailable, err)
	default:
		// Only readers of this object get an error, when it cannot be decoded; all others are
		// served.
		log := s.log
		if fallen := (*panicError)(nil); errors.As(err, &fallen) {
			log = log.With("stack", string(fallen.stack))
		}
		log.Error("an object cannot be decrypted", "key", kv.Key, "err", err)
	}
	return nil
}

// DecryptError returns why a stored value cannot be decrypted; nil if it can, or is not encrypted.
func (s *Store) DecryptError(ctx context.Context, key string, value []byte) error {
	r := s.ruleOf(key)
	if r == nil || !encrypted(value) {
		return nil
	}
	_, _, err := r.TransformFromStorage(s.withResource(ctx, key), value, s.valueContext(key))
	return err
}

// Seal encrypts a value as the store would, for a copy of it elsewhere. A value of a resource that
// is not encrypted stays as it is.
func (s *Store) Seal(ctx context.Context, key string, plain []byte) ([]byte, error) {
	r := s.ruleOf(key)
	if r == nil {
		return plain, nil
	}
	return r.TransformToStorage(s.withResource(ctx, key), plain, s.valueContext(key))
}

// Unseal decrypts a value from Seal. It fails if the key is no longer in the configuration.
func (s *Store) Unseal(ctx context.Context, key string, sealed []byte) ([]byte, error) {
	if !encrypted(sealed) {
		return sealed, nil
	}
	r := s.ruleOf(key)
	if r == nil {
		return nil, errNoProvider
	}
	plain, _, err := r.TransformFromStorage(s.withResource(ctx, key), sealed, s.valueContext(key))
	return plain, err
}

// NeedsReencryption reports whether the key's value would now be encrypted differently.
func (s *Store) NeedsReencryption(ctx context.Context, key string) (bool, error) {
	r := s.ruleOf(key)
	if r == nil {
		return false, nil
	}
	kv, _, err := s.Store.Get(ctx, key, 0)
	if err != nil || kv == nil {
		return false, err
	}
	_, stale, err := r.TransformFromStorage(s.withResource(ctx, key), kv.Value, s.valueContext(key))
	if errors.Is(err, errNoProvider) && !encrypted(kv.Value) {
		return true, nil // from before encryption, and no provider is "identity" any more
	}
	return stale, err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string, revision int64) (*store.KeyValue, int64, error) {
	kv, at, err := s.Store.Get(ctx, key, revision)
	if err == nil && kv != nil {
		err = s.decrypt(ctx, kv)
	}
	return kv, at, err
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, prefix string, opts store.RangeOptions) (store.RangeResult, error) {
	res, err := s.Store.Range(ctx, prefix, opts)
	for i := range res.KVs {
		if err := s.decrypt(ctx, &res.KVs[i]); err != nil {
			return store.RangeResult{}, err
		}
	}
	return res, err
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	ops = slices.Clone(ops) // do not change the caller's, which may be committed again
	held := false
	for i := range ops {
		if ops[i].Delete || s.ruleOf(ops[i].Key) == nil {
			continue
		}
		if !held {
			s.using.RLock()
			defer s.using.RUnlock()
			held = true
		}
		r := s.ruleOf(ops[i].Key)
		if r == nil {
			continue
		}
		sealed, err := r.TransformToStorage(s.withResource(ctx, ops[i].Key), ops[i].Value, s.valueContext(ops[i].Key))
		if err != nil {
			return store.TxnResult{}, fmt.Errorf("encrypt %s: %w", ops[i].Key, err)
		}
		ops[i].Value = sealed
	}
	res, err := s.Store.Commit(ctx, conditions, ops...)
	for _, kv := range res.Current {
		if kv != nil && err == nil {
			err = s.decrypt(ctx, kv)
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
		// The stream has the changes of all resources, so it does not wait for a plugin. OnRepair's
		// function runs once the value can be read.
		if err := d.store.decrypt(ctx, &batch.Events[i].KV); err != nil && ctx.Err() == nil {
			d.store.addBroken(batch.Events[i].KV.Key, err)
		}
	}
	return batch, err
}
