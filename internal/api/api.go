// Package api owns the table of built-in kinds and the codecs for their wire formats.
//
// The external storage version of each kind is the hub (there are no internal types): every
// component works with the Go types of k8s.io/api in their storage version.
package api

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is one row of the table: all that the API server needs to know to serve a kind, except its
// behaviour, which is a resource.Strategy.
type Kind struct {
	Kind       schema.GroupVersionKind // in the storage version, which is the hub
	Resource   string                  // plural, lower case
	Singular   string
	ShortNames []string
	Categories []string
	Namespaced bool
	// Served lists the versions served, the preferred one first.
	Served []string
	// Prefix is where objects lie in the store, as upstream: "/registry/pods". Namespaced objects lie at
	// Prefix/namespace/name, others at Prefix/name.
	Prefix string
	// StorageVersion is set where the version in the store is not the hub's: objects lie there encoded in
	// this version, as upstream stores them. EncodeStored and DecodeStored convert.
	StorageVersion string
	// Virtual kinds are computed or acted upon, never stored (reviews, bindings, componentstatuses); no Prefix.
	Virtual bool
	// Alias names the kind whose stored objects this one shows in another form: events of events.k8s.io are
	// those of the core group. Convert goes between the two. Empty for all others.
	Alias schema.GroupResource
	// Verbs is nil for the usual eight (create delete deletecollection get list patch update watch).
	Verbs        []string
	Subresources []Subresource
	// Object is a zero value of the Go type in the storage version.
	Object runtime.Object
}

// Subresource is one path below an object.
type Subresource struct {
	Name  string                  // "status", "scale", "binding"
	Kind  schema.GroupVersionKind // what it takes and gives
	Verbs []string
	// Connect marks a stream or proxy to the object (exec, log, proxy): Kind holds its options, from the query.
	Connect bool
}

// standardVerbs are what a kind with nil Verbs can do.
var standardVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// AllVerbs are the verbs of the resource itself, sorted.
func (k *Kind) AllVerbs() []string {
	if k.Verbs == nil {
		return standardVerbs
	}
	return k.Verbs
}

// HasVerb tells whether the resource itself can do verb.
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

// StoredAs is the kind in the version in which its objects lie in the store. It panics for virtual kinds.
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

// New is an empty object of the hub type.
func (k *Kind) New() runtime.Object {
	return reflect.New(reflect.TypeOf(k.Object).Elem()).Interface().(runtime.Object)
}

// NewList is an empty list of the hub type. Kinds that are only created have none.
func (k *Kind) NewList() (runtime.Object, error) {
	return Scheme.New(k.Kind.GroupVersion().WithKind(k.Kind.Kind + "List"))
}

// GVR is the resource in the storage version.
func (k *Kind) GVR() schema.GroupVersionResource {
	return k.Kind.GroupVersion().WithResource(k.Resource)
}

// GroupResource is the resource without version.
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

// Kinds is the table, in discovery order. Read-only.
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

// ResourceOf is the storage-version resource of an object's Go type. It panics for a type that is not in the
// table, which is a programming error.
func ResourceOf(obj runtime.Object) schema.GroupVersionResource {
	k, ok := index().byType[reflect.TypeOf(obj)]
	if !ok {
		panic(fmt.Sprintf("api: %T is not in the table of kinds", obj))
	}
	return k.GVR()
}
