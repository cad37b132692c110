package registry

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/resource/pods"
)

// RefusePrivileged reports privileged containers together with other field errors, as upstream
// does. Writes to status and scale are not checked.
func (es *Kinds) RefusePrivileged() {
	for _, r := range es.registries {
		if !pods.MakesPods(r.Kind.New()) {
			continue
		}
		r.Hooks.Validate = func(_ context.Context, a *admission.Attributes) (field.ErrorList, error) {
			if a.Subresource == "status" || a.Subresource == "scale" {
				return nil, nil
			}
			return pods.Privileged(a.Object), nil
		}
	}
}

// kindProvider adds kinds while the server runs (custom resources). It finds an endpoint by group,
// version and resource.
type kindProvider interface {
	Endpoint(gvr schema.GroupVersionResource) (*Endpoint, bool)
	// InUse returns the endpoints that have been created so far.
	InUse() []*Endpoint
}

// Kinds finds endpoints by group, version and resource: first the table's kinds, then those of
// dynamic providers.
type Kinds struct {
	Shared     *Shared
	Builtin    map[schema.GroupVersionResource]*Endpoint
	registries map[schema.GroupResource]*Registry
	switches   *api.Switches
	// versions are the group versions that have a built-in kind that is served.
	versions map[schema.GroupVersion]bool
	// Scales encodes the Scales of all kinds; it has no objects of its own.
	Scales *Endpoint

	mu      sync.RWMutex
	dynamic []kindProvider
}

// NewKinds returns the kinds of the table, without those that on turns off.
func NewKinds(s *Shared, on *api.Switches) *Kinds {
	table := api.Kinds()
	es := &Kinds{
		Builtin:    make(map[schema.GroupVersionResource]*Endpoint, len(table)),
		registries: make(map[schema.GroupResource]*Registry, len(table)),
		Scales:     newScales(s),
		Shared:     s,
		switches:   on,
		versions:   map[schema.GroupVersion]bool{},
	}
	for i := range table {
		kind := &table[i]
		r := newRegistry(s, kind)
		es.registries[r.Resource] = r
		if target := es.registries[kind.Alias]; target != nil && kind.Alias.Resource != "" {
			target.Aliases = append(target.Aliases, r.Resource)
			r.Aliases = append(r.Aliases, kind.Alias)
		}
		served := kind.Served
		if len(served) == 0 {
			served = []string{kind.Kind.Version}
		}
		for _, version := range served {
			e := NewEndpoint(r, version)
			es.Builtin[e.GVR] = e
			if es.switches.Serves(e.GVR) {
				es.versions[e.GVR.GroupVersion()] = true
			}
		}
	}
	return es
}

// Hook changes the hooks of a built-in kind, which run within its writes.
func (es *Kinds) Hook(group, resource string, set func(*Hooks)) {
	if r := es.Registry(group, resource); r != nil {
		set(&r.Hooks)
	}
}

// Join adds a provider of kinds that appear while the server runs.
func (es *Kinds) Join(p kindProvider) {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.dynamic = append(es.dynamic, p)
}

// Find returns the endpoint of a resource, built-in or dynamic.
func (es *Kinds) Find(gvr schema.GroupVersionResource) (*Endpoint, bool) {
	if e, ok := es.Builtin[gvr]; ok {
		return e, true
	}
	if es.HasBuiltInVersion(gvr.GroupVersion()) {
		return nil, false
	}
	es.mu.RLock()
	defer es.mu.RUnlock()
	for _, p := range es.dynamic {
		if e, ok := p.Endpoint(gvr); ok {
			return e, true
		}
	}
	return nil, false
}

// inUse returns the endpoints of all built-in kinds and of the custom kinds that have been used.
func (es *Kinds) inUse() []*Endpoint {
	list := slices.Collect(maps.Values(es.Builtin))
	es.mu.RLock()
	defer es.mu.RUnlock()
	for _, p := range es.dynamic {
		list = append(list, p.InUse()...)
	}
	return list
}

// FindServed is find without the resources that are turned off for clients.
func (es *Kinds) FindServed(gvr schema.GroupVersionResource) (*Endpoint, bool) {
	if !es.switches.Serves(gvr) {
		return nil, false
	}
	return es.Find(gvr)
}

// HasBuiltInVersion reports whether a built-in kind is served in the group version. Custom kinds
// cannot add to such a group version.
func (es *Kinds) HasBuiltInVersion(gv schema.GroupVersion) bool { return es.versions[gv] }

// HasBuiltInPrefix reports whether a built-in kind stores its objects under the prefix.
func (es *Kinds) HasBuiltInPrefix(prefix string) bool {
	for _, r := range es.registries {
		if r.Kind.Prefix == prefix {
			return true
		}
	}
	return false
}

// ByPrefix returns the built-in kinds that store objects, by their key prefix.
func (es *Kinds) ByPrefix() map[string]*Registry {
	all := map[string]*Registry{}
	for _, r := range es.registries {
		if !r.Kind.Virtual && r.Kind.Alias == (schema.GroupResource{}) {
			all[r.Kind.Prefix] = r
		}
	}
	return all
}

// HasGroup reports whether a built-in kind of the group is served.
func (es *Kinds) HasGroup(group string) bool {
	for gvr := range es.Builtin {
		if gvr.Group == group && es.switches.Serves(gvr) {
			return true
		}
	}
	return false
}

// Registry returns the registry of a built-in kind; nil if the table does not have it.
func (es *Kinds) Registry(group, resource string) *Registry {
	return es.registries[schema.GroupResource{Group: group, Resource: resource}]
}

// Hub returns the endpoint of a built-in kind in its storage version.
func (es *Kinds) Hub(group, resource string) (*Endpoint, bool) {
	r := es.Registry(group, resource)
	if r == nil {
		return nil, false
	}
	return es.Find(r.Kind.GVR())
}

// IsEvents reports whether the endpoint serves Events; a custom kind may have the same plural.
func (e *Endpoint) IsEvents() bool {
	return e.Custom == nil && e.Resource.Resource == "events"
}

// Allows reports whether the endpoint has the verb on the object itself or the subresource.
func (e *Endpoint) Allows(verb, subresource string) bool {
	if subresource == "" {
		return e.Kind.HasVerb(verb)
	}
	sub, ok := e.Kind.Subresource(subresource)
	return ok && slices.Contains(sub.Verbs, verb)
}
