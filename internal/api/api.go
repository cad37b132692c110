// Package api owns the table of built-in kinds, the conversion between their versions, and the
// codecs of their wire formats.
//
// Words. The hub of a kind is the one version in memory: every component works with that version's
// Go type from k8s.io/api. There are no internal types. See docs/adr/0014-one-table-of-kinds.md.
package api

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is one row of the table: everything the API server needs to serve a kind, except its
// behaviour, which is a resource.Strategy.
type Kind struct {
	Kind       schema.GroupVersionKind // in the hub version
	Resource   string                  // plural, lower case
	Singular   string
	ShortNames []string
	Categories []string
	Namespaced bool
	// Served lists the served versions, the preferred one first.
	Served []string
	// Prefix is the kind's key prefix in the store, as upstream: "/registry/pods". Namespaced
	// objects have the key Prefix/namespace/name, others Prefix/name.
	Prefix string
	// StorageVersion is set if objects are stored in another version than the hub, as upstream
	// stores them. EncodeStored and DecodeStored convert.
	StorageVersion string
	// Virtual kinds are computed or executed, never stored (reviews, bindings, componentstatuses).
	// They have no Prefix.
	Virtual bool
	// Alias names the kind whose stored objects this kind shows in another form: events.k8s.io
	// shows the Events of the core group. Convert converts between the two. Empty for all other
	// kinds.
	Alias schema.GroupResource
	// Verbs is nil for the usual eight (create delete deletecollection get list patch update
	// watch).
	Verbs        []string
	Subresources []Subresource
	// Gate is the feature gate of a kind that is off by default. Clients can use the kind if the
	// gate and its version are turned on; see ParseSwitches.
	Gate string
	// Object is a zero value of the hub type.
	Object runtime.Object
}

// Subresource is one path below an object.
type Subresource struct {
	Name  string                  // "status", "scale", "binding"
	Kind  schema.GroupVersionKind // kind of the request and response body
	Verbs []string
	// Connect marks a stream or proxy to the object (exec, log, proxy). Kind then holds its
	// options, which come from the query.
	Connect bool
}

// standardVerbs are the verbs of kinds with nil Verbs.
var standardVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// AllVerbs returns the verbs of the resource itself, sorted.
func (k *Kind) AllVerbs() []string {
	if k.Verbs == nil {
		return standardVerbs
	}
	return k.Verbs
}

// HasVerb reports whether the resource itself has the verb.
func (k *Kind) HasVerb(verb string) bool { return slices.Contains(k.AllVerbs(), verb) }

// Subresource finds a subresource by name.
func (k *Kind) Subresource(name string) (*Subresource, bool) {
	for i := range k.Subresources {
		if k.Subresources[i].Name == name {
			return &k.Subresources[i], true
		}
	}
	return nil, false
}

// StoredAs returns the kind in its storage version. It panics for virtual kinds.
func (k *Kind) StoredAs() schema.GroupVersionKind {
	if k.Virtual {
		panic("api: " + k.Kind.String() + " is not stored")
	}
	if k.Alias != (schema.GroupResource{}) {
		target, _ := ByResource(k.Alias)
		return target.StoredAs()
	}
	gvk := k.Kind
	if k.StorageVersion != "" {
		gvk.Version = k.StorageVersion
	}
	return gvk
}

// New returns an empty object of the hub type.
func (k *Kind) New() runtime.Object {
	return reflect.New(reflect.TypeOf(k.Object).Elem()).Interface().(runtime.Object)
}

// NewList returns an empty list of the hub type. It fails for kinds that can only be created.
func (k *Kind) NewList() (runtime.Object, error) {
	return Scheme.New(k.Kind.GroupVersion().WithKind(k.Kind.Kind + "List"))
}

// GVR returns the resource in the hub version.
func (k *Kind) GVR() schema.GroupVersionResource {
	return k.Kind.GroupVersion().WithResource(k.Resource)
}

// GroupResource returns the resource without its version.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Kind.Group, Resource: k.Resource}
}

var index = sync.OnceValue(func() (ix struct {
	byType     map[reflect.Type]*Kind
	byResource map[schema.GroupResource]*Kind
	byKind     map[schema.GroupKind]*Kind
}) {
	ix.byType = map[reflect.Type]*Kind{}
	ix.byResource = map[schema.GroupResource]*Kind{}
	ix.byKind = map[schema.GroupKind]*Kind{}
	for i := range kinds {
		k := &kinds[i]
		ix.byType[reflect.TypeOf(k.Object)] = k
		ix.byResource[k.GroupResource()] = k
		ix.byKind[k.Kind.GroupKind()] = k
	}
	return ix
})

// Kinds returns the table in discovery order. It is read-only.
func Kinds() []Kind { return kinds }

// ByResource finds a built-in kind by group and plural name.
func ByResource(gr schema.GroupResource) (*Kind, bool) {
	k, ok := index().byResource[gr]
	return k, ok
}

// ByKind finds a built-in kind by group and kind.
func ByKind(gk schema.GroupKind) (*Kind, bool) {
	k, ok := index().byKind[gk]
	return k, ok
}

// ResourceOf returns the hub resource of an object's Go type. It panics if the type is not in the
// table, which is a programming error.
func ResourceOf(obj runtime.Object) schema.GroupVersionResource {
	k, ok := index().byType[reflect.TypeOf(obj)]
	if !ok {
		panic(fmt.Sprintf("api: %T is not in the table of kinds", obj))
	}
	return k.GVR()
}
