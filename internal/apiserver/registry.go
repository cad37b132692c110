package apiserver

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/ownership"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/resource"
)

// registry is one kind with everything that serves it: behaviour, codec, cache and write path.
type registry struct {
	shared *shared
	at     *place // the store of its objects
	kind   *api.Kind
	// hub is the kind of the objects in memory: the kind itself, or the one whose objects an alias
	// shows.
	hub      schema.GroupVersionKind
	strategy *resource.Strategy
	codec    objectCodec
	// custom is set for custom resources. Each version of a definition has a registry, and objects
	// in memory have that version.
	custom   *customVersion
	resource schema.GroupResource
	// shownBy are the other kinds that show the same stored objects (Events in two groups) with
	// different field names.
	shownBy []schema.GroupResource
	hooks   hooks

	mu       sync.Mutex
	reader   cache.Reader
	managers map[managerKey]fieldManager
	trackers map[string]*ownership.Tracker // by subresource

	sharedLists sharedLists
	reads       readStats
}

// hooks are additional steps of a few kinds within the write, such as cluster IPs of Services.
type hooks struct {
	// stamp sets timestamps before the object is compared with the stored one.
	stamp func(obj runtime.Object, now metav1.Time)
	// create and update may change obj and add conditions and operations to the transaction.
	create func(ctx context.Context, t *txn, obj runtime.Object) error
	update func(ctx context.Context, t *txn, obj, old runtime.Object) error
	remove func(ctx context.Context, t *txn, old runtime.Object) error
	// fields returns field errors besides the strategy's.
	fields func(ctx context.Context, a *admission.Attributes) (field.ErrorList, error)
	// deleting replaces the usual mark of deletion for an object that is not being deleted yet.
	deleting func(obj runtime.Object, now metav1.Time)
}

// storedAsJSON are the groups whose objects upstream stores as JSON.
var storedAsJSON = map[string]bool{"apiextensions.k8s.io": true, "apiregistration.k8s.io": true}

func newRegistry(s *shared, kind *api.Kind) *registry {
	r := &registry{shared: s, at: s.placeOf(kind.Prefix), kind: kind, hub: kind.Kind, resource: kind.GroupResource(), managers: map[managerKey]fieldManager{}, trackers: map[string]*ownership.Tracker{}}
	if target, ok := api.ByResource(kind.Alias); ok && kind.Alias.Resource != "" {
		r.hub = target.Kind
	}
	if r.strategy = resource.For(r.resource); r.strategy == nil {
		r.strategy = &resource.Strategy{}
	}
	if !kind.Virtual {
		r.codec = &storedCodec{hub: r.hub, stored: kind.StoredAs(), json: storedAsJSON[kind.Kind.Group]}
	}
	return r
}

// key returns the object's key in the store.
func (r *registry) key(namespace, name string) string {
	if r.kind.Namespaced {
		return r.kind.Prefix + "/" + namespace + "/" + name
	}
	return r.kind.Prefix + "/" + name
}

// prefix returns the key prefix of a namespace's objects; of all objects if namespace is empty.
func (r *registry) prefix(namespace string) string {
	if r.kind.Namespaced && namespace != "" {
		return r.kind.Prefix + "/" + namespace + "/"
	}
	return r.kind.Prefix + "/"
}

// names returns the namespace and name in a key.
func (r *registry) names(key string) (namespace, name string) {
	rest := strings.TrimPrefix(key, r.kind.Prefix+"/")
	if !r.kind.Namespaced {
		return "", rest
	}
	namespace, name, _ = strings.Cut(rest, "/")
	return namespace, name
}

// objectCodec encodes a kind's objects for the store and decodes them.
type objectCodec interface {
	encode(obj runtime.Object) ([]byte, error)
	decode(data []byte, revision int64) (runtime.Object, error)
}

// decode returns the hub object with defaults for stored bytes.
func (r *registry) decode(stored []byte, revision int64) (runtime.Object, error) {
	obj, err := r.codec.decode(stored, revision)
	r.shared.store.decoded(r.resource, err)
	if err != nil {
		return nil, err
	}
	if r.custom == nil { // custom objects have the defaults of the version in which they are stored
		r.applyDefaults(obj)
	}
	return obj, nil
}

// asRead returns a written object as readers will see it.
func (r *registry) asRead(obj runtime.Object, stored []byte, revision int64) (runtime.Object, error) {
	if r.custom == nil || r.kind.StorageVersion == "" {
		r.applyDefaults(obj)
		return obj, nil
	}
	return r.decode(stored, revision) // a conversion may have dropped fields
}

// asStored returns the answer to a dry run: the object as it would come out of the store, with its
// current resourceVersion, if any.
func (r *registry) asStored(obj runtime.Object) (runtime.Object, error) {
	if r.custom == nil || r.kind.StorageVersion == "" {
		return obj, nil
	}
	stored, err := r.codec.encode(obj)
	if err != nil {
		return nil, err
	}
	out, err := r.decode(stored, 0)
	if err == nil {
		accessor(out).SetResourceVersion(accessor(obj).GetResourceVersion())
	}
	return out, err
}

func (r *registry) applyDefaults(obj runtime.Object) {
	if r.strategy.Default != nil {
		r.strategy.Default(obj)
	}
}

// header returns the properties that selectors use.
func (r *registry) header(obj runtime.Object) cache.Header {
	acc, err := meta.Accessor(obj)
	if err != nil {
		return cache.Header{}
	}
	h := cache.Header{Namespace: acc.GetNamespace(), Name: acc.GetName(), UID: string(acc.GetUID()), Labels: cache.PairsOf(acc.GetLabels())}
	if r.strategy.Fields == nil {
		return h
	}
	selectable := r.strategy.Fields(obj)
	for _, gr := range r.shownBy {
		if other := resource.For(gr); other != nil && other.Fields != nil {
			maps.Copy(selectable, other.Fields(obj))
		}
	}
	h.Fields = cache.PairsOf(selectable)
	return h
}

// cache returns the kind's cache, and starts it on first use.
func (r *registry) cache(ctx context.Context) (cache.Reader, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reader != nil {
		return r.reader, nil
	}
	reader, err := r.at.cache.OpenKind(ctx, r.schema())
	if err != nil {
		return nil, fmt.Errorf("open the cache of %s: %w", r.resource, err)
	}
	r.reader = reader
	return reader, nil
}

// heldDecoded are the kinds whose objects the scheduler and the controllers all hold. If the cache
// dropped its decoded objects, it would decode them a second time.
var heldDecoded = map[schema.GroupResource]bool{{Resource: "pods"}: true, {Resource: "nodes"}: true}

// schema tells the cache how to read the kind. Objects of a custom kind are cached as stored, for
// all versions.
func (r *registry) schema() cache.Schema {
	if r.custom != nil {
		return r.customSchema()
	}
	return cache.Schema{Prefix: r.kind.Prefix, Decode: r.decode, Header: r.header, Keep: heldDecoded[r.resource]}
}

// objectOf returns the entry's object in the hub version, shared and read-only.
func (r *registry) objectOf(entry *cache.Entry) (runtime.Object, error) {
	if r.custom != nil {
		return entry.Derived(r.custom.name, r.custom.FromStored)
	}
	return entry.Object()
}

// started returns the kind's cache if it was started, else nil.
func (r *registry) started() cache.Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reader
}

// newObject returns an empty object of the hub type.
func (r *registry) newObject() runtime.Object {
	if r.custom != nil {
		return r.custom.New()
	}
	obj, err := api.Scheme.New(r.hub)
	if err != nil {
		panic(err) // the scheme has every kind of the table
	}
	return obj
}

// hasSubresource reports whether the kind has the subresource.
func (r *registry) hasSubresource(name string) bool {
	_, ok := r.kind.Subresource(name)
	return ok
}

// endpoint is a registry in one served version.
type endpoint struct {
	*registry
	gvk schema.GroupVersionKind
	gvr schema.GroupVersionResource
	// jsonForm and protobufForm are the keys of the endpoint's encodings in cache entries.
	jsonForm, protobufForm string
	watched                watchStats
}

func newEndpoint(r *registry, version string) *endpoint {
	gv := schema.GroupVersion{Group: r.kind.Kind.Group, Version: version}
	return &endpoint{
		registry: r, gvk: gv.WithKind(r.kind.Kind.Kind), gvr: gv.WithResource(r.kind.Resource),
		jsonForm: gv.String() + "+json", protobufForm: gv.String() + "+protobuf",
	}
}

// fromHub converts to the endpoint's version.
func (e *endpoint) fromHub(obj runtime.Object) (runtime.Object, error) {
	return convert(obj, e.hub, e.gvk)
}

// toHub converts from the endpoint's version and applies the kind's defaults.
func (e *endpoint) toHub(obj runtime.Object) (runtime.Object, error) {
	out, err := convert(obj, e.gvk, e.hub)
	if err != nil {
		return nil, err
	}
	e.applyDefaults(out)
	return out, nil
}

// accessor returns the metadata of an object that is known to have some.
func accessor(obj runtime.Object) metav1.Object {
	acc, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("%T has no metadata", obj))
	}
	return acc
}

// clearKind empties the TypeMeta, as built-in objects in memory have it. Custom objects keep
// theirs: it is part of their content.
func clearKind(obj runtime.Object) {
	if _, custom := obj.(runtime.Unstructured); !custom {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
}

// shallowCopy copies the outermost struct only.
func shallowCopy(obj runtime.Object) runtime.Object {
	v := reflect.ValueOf(obj).Elem()
	out := reflect.New(v.Type())
	out.Elem().Set(v)
	return out.Interface().(runtime.Object)
}

// clearObject sets obj to its zero value.
func clearObject(obj runtime.Object) {
	v := reflect.ValueOf(obj).Elem()
	v.SetZero()
}

// logPanic logs a panic in work that goes on after its request's handler has returned.
func (e *endpoint) logPanic(what string, v any) {
	e.shared.log.Error(what, "resource", e.gvr.String(), "panic", v, "stack", string(debug.Stack()))
}
