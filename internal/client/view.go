package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/knarr-project/knarr/internal/cache"
)

// LocalSource is a kind's cache for Views in the API server's process.
type LocalSource struct {
	// Kind returns the kind's cache, and opens it if necessary. The View calls it again if the
	// cache is forgotten, as when the definition of a custom resource changes.
	Kind func(ctx context.Context) (*cache.Kind, error)
	// Prefix is the objects' key prefix, such as "/registry/pods".
	Prefix     string
	Namespaced bool

	// Convert converts a stored object to another version, whose name is Version; nil shows the
	// stored one. The result is made once for each object and shared.
	Convert func(runtime.Object) (runtime.Object, error)
	Version string
}

// NewLocalView opens a View over the cache. It shows the cache's own objects, so it costs no more
// than its indexes and subscribers. A writer must wait until the cache has reached the write
// (cache.Reader.WaitFor); then the View shows it. Each View has its own indexes, which the cache
// drops when ctx ends: a component that is started again opens new Views.
func NewLocalView(ctx context.Context, source LocalSource, scope Scope) (View, error) {
	interest, err := scope.interest()
	if err != nil {
		return nil, err
	}
	kind, err := source.Kind(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{source: source, interest: interest, id: newViewID(), light: scope.MetadataOnly}
	switch {
	case scope.MetadataOnly:
		v.object = func(e *cache.Entry) (runtime.Object, error) { return e.Derived("metadata", metadataOf) }
	case source.Convert != nil:
		v.object = func(e *cache.Entry) (runtime.Object, error) { return e.Derived(source.Version, source.Convert) }
	default:
		v.object, v.plain = (*cache.Entry).Object, scope == Scope{}
	}
	v.kind.Store(kind)
	v.field, v.value, v.byField = exactField(interest)
	if v.byField && v.field == "metadata.name" && (interest.Namespace != "" || !source.Namespaced) {
		v.byField, v.byName = false, true
	}
	if v.byField {
		v.addFieldIndex(kind)
	}
	context.AfterFunc(ctx, v.dropIndexes)
	return v, nil
}

var viewIDs atomic.Int64

// newViewID returns the beginning of the names of a View's own indexes.
func newViewID() string { return fmt.Sprintf("view %d ", viewIDs.Add(1)) }

// view is a View over a cache.Kind. The store fills the kind in process; a watch over HTTPS fills
// it in a remote client.
type view struct {
	source   LocalSource
	interest cache.Interest
	object   func(*cache.Entry) (runtime.Object, error)
	id       string // begins the names of its own indexes
	light    bool
	plain    bool // it shows the kind's own objects, and all of them

	kind      atomic.Pointer[cache.Kind]
	reopening sync.Mutex // guards kind and ended
	ended     bool       // the indexes are dropped
	indexes   indexFuncs

	// A selector for one value of a field, such as the pods of a node, uses an index of the entries
	// with this value. A selector for one object's name needs no index.
	byField      bool
	byName       bool
	field, value string
}

var _ View = (*view)(nil)

func (s Scope) interest() (cache.Interest, error) {
	i := cache.Interest{Namespace: s.Namespace}
	var err error
	if s.LabelSelector != "" {
		if i.Labels, err = labels.Parse(s.LabelSelector); err != nil {
			return i, fmt.Errorf("open a view: label selector %q: %w", s.LabelSelector, err)
		}
	}
	if s.FieldSelector != "" {
		if i.Fields, err = fields.ParseSelector(s.FieldSelector); err != nil {
			return i, fmt.Errorf("open a view: field selector %q: %w", s.FieldSelector, err)
		}
	}
	return i, nil
}

// exactField returns the first field for which the interest requires one value.
func exactField(i cache.Interest) (field, value string, ok bool) {
	if i.Fields == nil {
		return "", "", false
	}
	for _, r := range i.Fields.Requirements() {
		if r.Operator == selection.Equals || r.Operator == selection.DoubleEquals {
			return r.Field, r.Value, true
		}
	}
	return "", "", false
}

// addFieldIndex adds an index of the entries with the field's value. Entries with other values are
// not indexed, because each write of the kind would pay for it.
func (v *view) addFieldIndex(k *cache.Kind) {
	field, value := v.field, v.value
	wanted := []string{value}
	k.AddEntryIndex(v.fieldIndex(), func(e *cache.Entry) []string {
		if e.Selectable().Get(field) == value {
			return wanted
		}
		return nil
	})
}

// dropIndexes removes the View's own indexes from the cache. Readers then scan. Shared indexes and
// that of a field's value stay: other Views use them too.
func (v *view) dropIndexes() {
	v.reopening.Lock()
	defer v.reopening.Unlock()
	v.ended = true
	kind := v.kind.Load()
	v.indexes.each(func(name string, _ func(*cache.Entry) []string) {
		if !v.shares(name) {
			kind.DropIndex(v.indexName(name))
		}
	})
}

func (v *view) fieldIndex() string { return "field " + v.field + "=" + v.value }

// metadataOf returns an object's metadata without managedFields. It shares strings and maps with
// the object.
func metadataOf(obj runtime.Object) (runtime.Object, error) {
	acc, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	shown := meta.AsPartialObjectMetadata(acc)
	shown.ManagedFields = nil
	return shown, nil
}

func (v *view) key(namespace, name string) string {
	if v.source.Namespaced && namespace != "" {
		return v.source.Prefix + "/" + namespace + "/" + name
	}
	return v.source.Prefix + "/" + name
}

func (v *view) Get(namespace, name string) (runtime.Object, bool) {
	e, ok := v.current().Snapshot().Get(v.key(namespace, name))
	if !ok || !v.interest.Matches(e) {
		return nil, false
	}
	return v.shown(e)
}

// shown returns the object of an entry. It leaves out an object that cannot be decoded.
func (v *view) shown(e *cache.Entry) (runtime.Object, bool) {
	obj, err := v.object(e)
	if err != nil {
		slog.Error("cannot decode an object; views do not show it", "component", "client", "key", e.Key, "revision", e.Revision, "error", err)
		return nil, false
	}
	return obj, true
}

func (v *view) List(namespace string, selector labels.Selector) []runtime.Object {
	if v.interest.Namespace != "" {
		if namespace != "" && namespace != v.interest.Namespace {
			return nil
		}
		namespace = v.interest.Namespace
	}
	all := selector == nil || selector.Empty()
	snap := v.current().Snapshot()
	var out []runtime.Object
	take := func(e *cache.Entry) bool {
		if v.interest.Matches(e) && (namespace == "" || e.Namespace == namespace) && (all || selector.Matches(&e.Header.Labels)) {
			if obj, ok := v.shown(e); ok {
				out = append(out, obj)
			}
		}
		return true
	}
	if v.byName {
		if e, ok := snap.Get(v.key(v.interest.Namespace, v.value)); ok {
			take(e)
		}
		return out
	}
	if v.byField && snap.ByIndex(v.fieldIndex(), v.value, take) {
		return out
	}
	prefix := v.source.Prefix + "/"
	if namespace != "" && v.source.Namespaced {
		prefix += namespace + "/"
	}
	snap.Ascend(prefix, "", take)
	return out
}

func (v *view) AddIndex(name string, values func(runtime.Object) []string) {
	of := func(e *cache.Entry) []string {
		if !v.interest.Matches(e) {
			return nil
		}
		obj, err := v.object(e)
		if err != nil {
			return nil
		}
		return values(obj)
	}
	if !v.indexes.add(name, of) {
		return
	}
	kind := v.current()
	v.reopening.Lock()
	defer v.reopening.Unlock()
	if !v.ended {
		kind.AddEntryIndex(v.indexName(name), of)
	}
}

func (v *view) indexName(name string) string {
	if v.shares(name) {
		return name
	}
	return v.id + name
}

// shares reports whether the index is the same in all Views that show the kind's own objects.
func (v *view) shares(name string) bool {
	return v.plain && strings.HasPrefix(name, SharedIndex)
}

func (v *view) ByIndex(name, value string) []runtime.Object {
	var out []runtime.Object
	take := func(e *cache.Entry) bool {
		if obj, ok := v.shown(e); ok {
			out = append(out, obj)
		}
		return true
	}
	snap := v.current().Snapshot()
	if snap.ByIndex(v.indexName(name), value, take) {
		return out
	}
	of, ok := v.indexes.get(name)
	if !ok {
		panic(fmt.Sprintf("client: a view of %s has no index %q", v.source.Prefix, name))
	}
	// The View has ended, or another goroutine is just adding the index.
	snap.Ascend(v.source.Prefix+"/", "", func(e *cache.Entry) bool {
		if slices.Contains(of(e), value) {
			take(e)
		}
		return true
	})
	return out
}

func (v *view) Revision() int64 { return v.current().Revision() }

func (v *view) WaitFor(ctx context.Context, revision int64) error {
	return v.current().WaitFor(ctx, revision)
}

func (v *view) Subscribe(ctx context.Context, fn func(Event)) (synced, done <-chan struct{}) {
	s, d := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(d)
		v.follow(ctx, fn, s)
	}()
	return s, d
}

// follow calls fn with each object and then with each change. If the subscriber is so slow that
// changes have left the event log, follow compares what fn knows with the current state.
func (v *view) follow(ctx context.Context, fn func(Event), synced chan<- struct{}) {
	known := picture{}
	for first := true; ctx.Err() == nil; first = false {
		kind := v.current()
		snap := kind.Snapshot()
		v.catchUp(known, snap, fn)
		if first {
			close(synced)
		}
		known = picture{base: snap}
		cursor, err := kind.Follow(snap, v.interest, v.light)
		if err == nil {
			err = v.deliver(ctx, cursor, fn)
			known.base, known.since = cursor.Delivered()
			cursor.Close()
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, cache.ErrClosed) {
			<-ctx.Done() // the process ends
			return
		}
		slog.Info("a view's subscriber fell behind; comparing its state with the current one", "component", "client", "kind", v.source.Prefix, "error", err)
		for v.reopen(ctx) != nil {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
	}
}

// deliver passes the cursor's changes on until the cursor fails or ctx ends.
func (v *view) deliver(ctx context.Context, cursor *cache.Cursor, fn func(Event)) error {
	for {
		changes, _, err := cursor.Next(ctx)
		if err != nil {
			return err
		}
		for i := range changes {
			if e, ok := v.event(changes[i].Type, changes[i].Old, changes[i].Entry); ok {
				fn(e)
			}
		}
	}
}

// event converts a change for a subscriber; false means that the objects cannot be shown.
func (v *view) event(t cache.ChangeType, old, entry *cache.Entry) (Event, bool) {
	e := Event{Type: Added, Revision: entry.Revision}
	if t != cache.Added {
		if obj, ok := v.shown(old); ok {
			e.Type, e.Old = Modified, obj
		}
	}
	if t == cache.Deleted {
		// Deleted shows the last known state, which is already decoded, without the revision of the
		// deletion.
		e.Type, e.Object = Deleted, e.Old
		return e, e.Old != nil
	}
	var ok bool
	e.Object, ok = v.shown(entry)
	return e, ok
}

// current returns the kind's cache. It reopens a cache that is gone.
func (v *view) current() *cache.Kind {
	kind := v.kind.Load()
	if !kind.Gone() {
		return kind
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := v.reopen(ctx); err != nil {
		level := slog.LevelWarn
		if apierrors.IsNotFound(err) {
			// The custom resource is not served any more. The caller will notice.
			level = slog.LevelDebug
		}
		slog.Log(ctx, level, "a view shows an old state", "component", "client", "kind", v.source.Prefix, "error", err)
	}
	return v.kind.Load()
}

// reopen asks the source for the kind's cache if the old one is gone.
func (v *view) reopen(ctx context.Context) error {
	v.reopening.Lock()
	defer v.reopening.Unlock()
	if !v.kind.Load().Gone() {
		return nil
	}
	kind, err := v.source.Kind(ctx)
	if err != nil {
		return err
	}
	if v.byField {
		v.addFieldIndex(kind)
	}
	if !v.ended {
		v.indexes.each(func(name string, of func(*cache.Entry) []string) { kind.AddEntryIndex(v.indexName(name), of) })
	}
	v.kind.Store(kind)
	return nil
}

// picture is what a subscriber knows: a snapshot, and the entries that changed since (nil means
// deleted).
type picture struct {
	base  *cache.Snapshot
	since map[string]*cache.Entry
}

func (p picture) get(key string) (*cache.Entry, bool) {
	if e, ok := p.since[key]; ok {
		return e, e != nil
	}
	if p.base == nil {
		return nil, false
	}
	return p.base.Get(key)
}

func (p picture) each(prefix string, fn func(*cache.Entry)) {
	if p.base != nil {
		p.base.Ascend(prefix, "", func(e *cache.Entry) bool {
			if _, changed := p.since[e.Key]; !changed {
				fn(e)
			}
			return true
		})
	}
	for key, e := range p.since {
		if e != nil && strings.HasPrefix(key, prefix) {
			fn(e)
		}
	}
}

// catchUp calls fn with the differences between the known picture and snap. An object that was
// deleted and created again gives two events.
func (v *view) catchUp(known picture, snap *cache.Snapshot, fn func(Event)) {
	report := func(t cache.ChangeType, old, entry *cache.Entry) {
		if e, ok := v.event(t, old, entry); ok {
			fn(e)
		}
	}
	prefix := v.source.Prefix + "/"
	known.each(prefix, func(old *cache.Entry) {
		if !v.interest.Matches(old) {
			return
		}
		if e, ok := snap.Get(old.Key); !ok || e.UID != old.UID || !v.interest.Matches(e) {
			report(cache.Deleted, old, old)
		}
	})
	snap.Ascend(prefix, "", func(e *cache.Entry) bool {
		if !v.interest.Matches(e) {
			return true
		}
		old, ok := known.get(e.Key)
		switch {
		case !ok || old.UID != e.UID || !v.interest.Matches(old):
			report(cache.Added, nil, e)
		case old.Revision != e.Revision:
			report(cache.Modified, old, e)
		}
		return true
	})
}
