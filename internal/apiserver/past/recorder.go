package past

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/insight/history"
	"github.com/knarr-project/knarr/internal/store"
)

// Past is the history of a server's objects.
type Past struct {
	Log   *history.Log
	Kinds *registry.Kinds
	Place *registry.Place // kinds in other places are not recorded
	Clock func() time.Time

	builtin map[string]*registry.Registry // by prefix
	// reading bounds how many questions read the log at a time, and so their memory.
	reading chan struct{}

	// Used by the cache's goroutine, and by Begin before that.
	begun   bool
	known   int64 // revision up to which changes were made before the start
	waiting []history.Write
}

var (
	_ cache.Tap     = (*Past)(nil)
	_ history.Rules = (*Past)(nil)
)

// Open prepares the fields of a Past, and connects it with the cache of its place.
func (p *Past) Open() {
	p.builtin, p.reading = p.Kinds.ByPrefix(), make(chan struct{}, 2)
	p.Place.Cache.Follow(p)
}

// Run starts the recording, if no reader of the cache has, and returns.
func (p *Past) Run(ctx context.Context) {
	for wait := 10 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, time.Second) {
		if err := p.Place.Cache.Start(ctx); err == nil || errors.Is(err, cache.ErrClosed) {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// Begin implements cache.Tap: the log continues where it ended if the store still has that
// revision.
func (p *Past) Begin(ctx context.Context) (after int64, err error) {
	if p.begun {
		after, _ = p.Log.Position()
		return after, nil
	}
	if p.known, err = p.Place.Store.Revision(ctx); err != nil {
		return 0, err
	}
	after, _ = p.Log.Position()
	if after == 0 || after > p.known {
		after = p.known
	}
	if _, _, err := p.Place.Store.Get(ctx, cache.Root, after); errors.Is(err, store.ErrCompacted) {
		after = p.known
	} else if err != nil {
		return 0, err
	}
	p.begun = true
	if err := p.Log.Start(p, after); err != nil { // no reason to serve nothing
		p.Kinds.Shared.Log.Warn("the history of objects is not recorded", "err", err)
	}
	return after, nil
}

// Changes implements cache.Tap.
func (p *Past) Changes(changes []cache.Tapped, revision int64) {
	list := p.waiting[:0]
	for i := range changes {
		c := &changes[i]
		w := history.Write{Key: c.KV.Key, Revision: c.KV.ModRevision, Effect: history.Changed, After: c.KV.Value, Replayed: c.KV.ModRevision <= p.known}
		switch {
		case c.Type == store.Deleted:
			w.Effect, w.After = history.Removed, nil
		case c.KV.CreateRevision == c.KV.ModRevision:
			w.Effect = history.Created
		}
		if c.Before != nil && w.Effect != history.Created {
			w.Before, w.BeforeRevision = c.Before.Stored(), c.Before.Revision
		}
		list = append(list, w)
	}
	p.Log.Append(list, revision, p.Clock())
	clear(list)
	p.waiting = list
	if cap(list) > 1024 {
		p.waiting = nil
	}
}

// Missed implements cache.Tap.
func (p *Past) Missed(revision int64) { p.Log.Lose(revision, p.Clock()) }

// unrecorded are the prefixes of keys that are not recorded: leases are renewed all the time, and
// the others are no objects.
var unrecorded = []string{"/registry/leases/", "/registry/masterleases/", "/registry/ranges/"}

// Recorded implements history.Rules.
func (p *Past) Recorded(key string) bool {
	for _, prefix := range unrecorded {
		if strings.HasPrefix(key, prefix) {
			return false
		}
	}
	return true
}

// Describe implements history.Rules: a kind's name is its prefix.
func (p *Past) Describe(key string) (kind, namespace string) {
	s := p.subject(key)
	return s.prefix, s.Namespace
}

// Before implements history.Rules.
func (p *Past) Before(ctx context.Context, key string, revision int64) ([]byte, int64, error) {
	kv, _, err := p.Place.Store.Get(ctx, key, revision-1)
	if err != nil || kv == nil {
		return nil, 0, err
	}
	return kv.Value, kv.ModRevision, nil
}

// sealer is a store that encrypts some objects.
type sealer interface {
	Seal(ctx context.Context, key string, plain []byte) ([]byte, error)
	Unseal(ctx context.Context, key string, sealed []byte) ([]byte, error)
}

const sealTimeout = 5 * time.Second

// Reduce implements history.Rules: values of Secrets are left out, and what the store encrypts is
// encrypted.
func (p *Past) Reduce(c *history.Change, w *history.Write) {
	if w.Replayed {
		c.Time = p.guessTime(c, w)
	}
	if c.Before == nil {
		return
	}
	s := p.subject(c.Key)
	if s.isSecret() {
		c.Omitted = true
		c.Before, c.Touched = s.withoutValues(c.Before, w.After)
	}
	under, ok := p.Place.Raw.(sealer)
	if !ok || c.Before == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sealTimeout)
	defer cancel()
	sealed, err := under.Seal(ctx, c.Key, c.Before)
	if err != nil {
		sealed, c.Omitted = nil, true
	}
	c.Before = sealed
}

// guessTime returns when a replayed change was made, as far as the object tells: the log has
// corrected times that are out of order.
func (p *Past) guessTime(c *history.Change, w *history.Write) time.Time {
	stored := w.After
	if stored == nil {
		stored = w.Before
	}
	s := p.subject(c.Key)
	doc, err := s.document(stored, c.Revision)
	if err != nil {
		return c.Time
	}
	newest := doc.created()
	if at := doc.newestWrite(); at.After(newest) {
		newest = at
	}
	if newest.IsZero() || newest.After(c.Time) {
		return c.Time
	}
	return newest
}

// subject is the object that a key stands for.
type subject struct {
	schema.GroupResource
	Namespace, Name string
	key, prefix     string
	registry        *registry.Registry // nil for a custom resource
}

// subject returns the object of a key: /registry/RESOURCE/..., or /registry/GROUP/RESOURCE/....
func (p *Past) subject(key string) subject {
	s := subject{key: key}
	rest := strings.TrimPrefix(key, cache.Root)
	first, rest, _ := strings.Cut(rest, "/")
	s.prefix = cache.Root + first
	if s.registry = p.builtin[s.prefix]; s.registry == nil {
		var second string
		second, rest, _ = strings.Cut(rest, "/")
		s.prefix += "/" + second
		s.registry = p.builtin[s.prefix]
		s.GroupResource = schema.GroupResource{Group: first, Resource: second}
	}
	if s.registry != nil {
		s.GroupResource = s.registry.Resource
	}
	if namespace, name, ok := strings.Cut(rest, "/"); ok {
		s.Namespace, s.Name = namespace, name
	} else {
		s.Name = rest
	}
	return s
}

func (s *subject) isSecret() bool {
	return s.GroupResource == schema.GroupResource{Resource: "secrets"}
}

func (s *subject) isEvent() bool { return s.GroupResource == schema.GroupResource{Resource: "events"} }

// withoutValues returns a stored Secret without its values, and the keys whose values differ from
// those after the change. A Secret that cannot be decoded is left out.
func (s *subject) withoutValues(before, after []byte) (stored []byte, touched []string) {
	obj, err := s.registry.Codec.Decode(before, 0)
	old, ok := obj.(*corev1.Secret)
	if err != nil || !ok {
		return nil, nil
	}
	if after != nil {
		if obj, err := s.registry.Codec.Decode(after, 0); err == nil {
			touched = touchedKeys(old, obj.(*corev1.Secret))
		}
	}
	hideValues(old)
	if stored, err = s.registry.Codec.Encode(old); err != nil {
		return nil, nil
	}
	return stored, touched
}

func touchedKeys(before, after *corev1.Secret) (touched []string) {
	for key, value := range before.Data {
		if now, ok := after.Data[key]; ok && !bytes.Equal(now, value) {
			touched = append(touched, "data."+key)
		}
	}
	return touched
}

// hideValues removes what a Secret keeps secret, and the copy of it that `kubectl apply` makes.
func hideValues(secret *corev1.Secret) {
	for key := range secret.Data {
		secret.Data[key] = []byte{}
	}
	secret.StringData = nil
	delete(secret.Annotations, corev1.LastAppliedConfigAnnotation)
}
