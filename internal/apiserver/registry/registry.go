package registry

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/ownership"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// ObjectOf returns an entry's object in its Go type.
func ObjectOf[T runtime.Object](entry *cache.Entry) (T, error) {
	var zero T
	obj, err := entry.Object()
	if err != nil {
		return zero, err
	}
	t, ok := obj.(T)
	if !ok {
		return zero, fmt.Errorf("%s holds a %T", entry.Key, obj)
	}
	return t, nil
}

// Registry is one kind with everything that serves it: behaviour, codec, cache and write path.
type Registry struct {
	Shared *Shared
	Place  *Place // the store of its objects
	Kind   *api.Kind
	// Hub is the kind of the objects in memory: the kind itself, or the one whose objects an alias
	// shows.
	Hub      schema.GroupVersionKind
	Strategy *strategy.Strategy
	Codec    objectCodec
	// Custom is set for custom resources. Each version of a definition has a registry, and objects
	// in memory have that version.
	Custom   *customVersion
	Resource schema.GroupResource
	// Aliases are the other kinds that show the same stored objects (Events in two groups) with
	// different field names.
	Aliases []schema.GroupResource
	Hooks   Hooks

	mu       sync.Mutex
	reader   cache.Reader
	managers map[managerKey]FieldManager
	trackers map[string]*ownership.Tracker // by subresource

	sharedLists sharedLists
	Reads       readStats
}

// Hooks are additional steps of a few kinds within the write, such as cluster IPs of Services.
type Hooks struct {
	// Create and update may change obj and add conditions and operations to the transaction.
	Create func(ctx context.Context, t *Transaction, obj runtime.Object) error
	Update func(ctx context.Context, t *Transaction, obj, old runtime.Object) error
	Remove func(ctx context.Context, t *Transaction, old runtime.Object) error
	// Validate returns field errors besides the strategy's.
	Validate func(ctx context.Context, a *admission.Attributes) (field.ErrorList, error)
	// MarkDeleted replaces the usual mark of deletion for an object that is not being deleted yet.
	MarkDeleted func(obj runtime.Object, now metav1.Time)
}

// storedAsJSON are the groups whose objects upstream stores as JSON.
var storedAsJSON = map[string]bool{"apiextensions.k8s.io": true, "apiregistration.k8s.io": true}

func newRegistry(s *Shared, kind *api.Kind) *Registry {
	r := &Registry{Shared: s, Place: s.placeFor(kind.Prefix), Kind: kind, Hub: kind.Kind, Resource: kind.GroupResource(), managers: map[managerKey]FieldManager{}, trackers: map[string]*ownership.Tracker{}}
	if target, ok := api.ByResource(kind.Alias); ok && kind.Alias.Resource != "" {
		r.Hub = target.Kind
	}
	if r.Strategy = resource.WithGates(r.Resource, s.Gates); r.Strategy == nil {
		r.Strategy = &strategy.Strategy{}
	}
	if !kind.Virtual {
		r.Codec = &wire.StoredCodec{Hub: r.Hub, Stored: kind.StoredAs(), JSON: storedAsJSON[kind.Kind.Group]}
	}
	return r
}

// Key returns the object's key in the store.
func (r *Registry) Key(namespace, name string) string {
	if r.Kind.Namespaced {
		return r.Kind.Prefix + "/" + namespace + "/" + name
	}
	return r.Kind.Prefix + "/" + name
}

// Prefix returns the key prefix of a namespace's objects; of all objects if namespace is empty.
func (r *Registry) Prefix(namespace string) string {
	if r.Kind.Namespaced && namespace != "" {
		return r.Kind.Prefix + "/" + namespace + "/"
	}
	return r.Kind.Prefix + "/"
}

// Names returns the namespace and name in a key.
func (r *Registry) Names(key string) (namespace, name string) {
	rest := strings.TrimPrefix(key, r.Kind.Prefix+"/")
	if !r.Kind.Namespaced {
		return "", rest
	}
	namespace, name, _ = strings.Cut(rest, "/")
	return namespace, name
}

// objectCodec encodes a kind's objects for the store and decodes them.
type objectCodec interface {
	Encode(obj runtime.Object) ([]byte, error)
	Decode(data []byte, revision int64) (runtime.Object, error)
}

// Decode returns the hub object with defaults for stored bytes.
func (r *Registry) Decode(stored []byte, revision int64) (runtime.Object, error) {
	obj, err := r.Codec.Decode(stored, revision)
	r.Shared.Store.Decoded(r.Resource, err)
	if err != nil {
		return nil, err
	}
	if r.Custom == nil { // custom objects have the defaults of the version in which they are stored
		r.ApplyDefaults(obj)
	}
	return obj, nil
}

// ReadForm returns a written object as readers will see it.
func (r *Registry) ReadForm(obj runtime.Object, stored []byte, revision int64) (runtime.Object, error) {
	if r.Custom == nil || r.Kind.StorageVersion == "" {
		r.ApplyDefaults(obj)
		return obj, nil
	}
	return r.Decode(stored, revision) // a conversion may have dropped fields
}

// DryRunForm returns the answer to a dry run: the object as it would come out of the store, with
// its current resourceVersion, if any.
func (r *Registry) DryRunForm(obj runtime.Object) (runtime.Object, error) {
	if r.Custom == nil || r.Kind.StorageVersion == "" {
		return obj, nil
	}
	stored, err := r.Codec.Encode(obj)
	if err != nil {
		return nil, err
	}
	out, err := r.Decode(stored, 0)
	if err == nil {
		wire.Accessor(out).SetResourceVersion(wire.Accessor(obj).GetResourceVersion())
	}
	return out, err
}

// ApplyDefaults sets the kind's defaults.
func (r *Registry) ApplyDefaults(obj runtime.Object) {
	if r.Strategy.Default != nil {
		r.Strategy.Default(obj)
	}
}

// Header returns the properties that selectors use.
func (r *Registry) Header(obj runtime.Object) cache.Header {
	acc, err := meta.Accessor(obj)
	if err != nil {
		return cache.Header{}
	}
	h := cache.Header{Namespace: acc.GetNamespace(), Name: acc.GetName(), UID: string(acc.GetUID()), Labels: cache.PairsOf(acc.GetLabels())}
	if r.Strategy.Fields == nil {
		return h
	}
	selectable := r.Strategy.Fields(obj)
	for _, gr := range r.Aliases {
		if other := resource.For(gr); other != nil && other.Fields != nil {
			maps.Copy(selectable, other.Fields(obj))
		}
	}
	h.Fields = cache.PairsOf(selectable)
	return h
}

// Cache returns the kind's cache, and starts it on first use.
func (r *Registry) Cache(ctx context.Context) (cache.Reader, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reader != nil {
		return r.reader, nil
	}
	reader, err := r.Place.Cache.OpenKind(ctx, r.schema())
	if err != nil {
		return nil, fmt.Errorf("open the cache of %s: %w", r.Resource, err)
	}
	r.reader = reader
	return reader, nil
}

// keepDecoded are the kinds whose objects the scheduler and the controllers all hold. If the cache
// dropped its decoded objects, it would decode them a second time.
var keepDecoded = map[schema.GroupResource]bool{{Resource: "pods"}: true, {Resource: "nodes"}: true}

// schema tells the cache how to read the kind. Objects of a custom kind are cached as stored, for
// all versions.
func (r *Registry) schema() cache.Schema {
	if r.Custom != nil {
		return r.customSchema()
	}
	return cache.Schema{Prefix: r.Kind.Prefix, Decode: r.decodeShared, Header: r.Header, Keep: keepDecoded[r.Resource]}
}

// decodeShared is Decode for read-only objects.
func (r *Registry) decodeShared(stored []byte, revision int64) (runtime.Object, error) {
	obj, err := r.Decode(stored, revision)
	if err == nil && r.Strategy.Share != nil {
		r.Strategy.Share(obj)
	}
	return obj, err
}

// ObjectOf returns the entry's object in the hub version, shared and read-only.
func (r *Registry) ObjectOf(entry *cache.Entry) (runtime.Object, error) {
	if r.Custom != nil {
		return entry.Derived(r.Custom.name, r.Custom.FromStored)
	}
	return entry.Object()
}

// OpenCache returns the kind's cache if it was started, else nil.
func (r *Registry) OpenCache() cache.Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reader
}

// NewObject returns an empty object of the hub type.
func (r *Registry) NewObject() runtime.Object {
	if r.Custom != nil {
		return r.Custom.New()
	}
	obj, err := api.Scheme.New(r.Hub)
	if err != nil {
		panic(err) // the scheme has every kind of the table
	}
	return obj
}

// HasSubresource reports whether the kind has the subresource.
func (r *Registry) HasSubresource(name string) bool {
	_, ok := r.Kind.Subresource(name)
	return ok
}

// Endpoint is a registry in one served version.
type Endpoint struct {
	*Registry
	GVK schema.GroupVersionKind
	GVR schema.GroupVersionResource
	// JSONForm and ProtobufForm are the keys of the endpoint's encodings in cache entries.
	JSONForm, ProtobufForm string
	Watched                watchStats
}

// NewEndpoint returns the endpoint of a registry in a version.
func NewEndpoint(r *Registry, version string) *Endpoint {
	gv := schema.GroupVersion{Group: r.Kind.Kind.Group, Version: version}
	return &Endpoint{
		Registry: r, GVK: gv.WithKind(r.Kind.Kind.Kind), GVR: gv.WithResource(r.Kind.Resource),
		JSONForm: gv.String() + "+json", ProtobufForm: gv.String() + "+protobuf",
	}
}

// FromHub converts to the endpoint's version.
func (e *Endpoint) FromHub(obj runtime.Object) (runtime.Object, error) {
	return wire.Convert(obj, e.Hub, e.GVK)
}

// ToHub converts from the endpoint's version and applies the kind's defaults.
func (e *Endpoint) ToHub(obj runtime.Object) (runtime.Object, error) {
	out, err := wire.Convert(obj, e.GVK, e.Hub)
	if err != nil {
		return nil, err
	}
	e.ApplyDefaults(out)
	return out, nil
}

// LogPanic logs a panic in work that continues after its request's handler has returned.
func (e *Endpoint) LogPanic(what string, v any) {
	e.Shared.Log.Error(what, "resource", e.GVR.String(), "panic", v, "stack", string(debug.Stack()))
}

// IsOwnKind reports whether an object is of the kind that the endpoint serves, not of a
// subresource's.
func (e *Endpoint) IsOwnKind(obj runtime.Object) bool {
	if _, ok := obj.(runtime.Unstructured); ok {
		return obj.GetObjectKind().GroupVersionKind().Kind == e.GVK.Kind
	}
	kinds, err := wire.KindOf(obj)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Kind == e.GVK.Kind })
}

// RemovedByUpdate reports whether the update removes the last finalizer of an object that is being
// deleted.
func (r *Registry) RemovedByUpdate(obj, old runtime.Object) bool {
	meta, before := wire.Accessor(obj), wire.Accessor(old)
	if before.GetDeletionTimestamp() == nil || len(meta.GetFinalizers()) > 0 {
		return false
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		return len(ns.Spec.Finalizers) == 0
	}
	grace := before.GetDeletionGracePeriodSeconds()
	return len(before.GetFinalizers()) > 0 && (grace == nil || *grace == 0)
}
