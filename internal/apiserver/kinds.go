package apiserver

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
)

// kindProvider adds kinds while the server runs (custom resources). It finds an endpoint by group,
// version and resource.
type kindProvider interface {
	endpoint(gvr schema.GroupVersionResource) (*endpoint, bool)
	// inUse returns the endpoints that have been created so far.
	inUse() []*endpoint
}

// endpoints finds endpoints by group, version and resource: first the table's kinds, then those of
// dynamic providers.
type endpoints struct {
	shared     *shared
	builtin    map[schema.GroupVersionResource]*endpoint
	registries map[schema.GroupResource]*registry
	on         *api.Switches
	// versions are the group versions that have a built-in kind that is served.
	versions map[schema.GroupVersion]bool
	// scales encodes the Scales of all kinds; it has no objects of its own.
	scales *endpoint

	mu      sync.RWMutex
	dynamic []kindProvider
}

func newEndpoints(s *shared, on *api.Switches) *endpoints {
	table := api.Kinds()
	es := &endpoints{
		builtin:    make(map[schema.GroupVersionResource]*endpoint, len(table)),
		registries: make(map[schema.GroupResource]*registry, len(table)),
		scales:     newScales(s),
		shared:     s,
		on:         on,
		versions:   map[schema.GroupVersion]bool{},
	}
	for i := range table {
		kind := &table[i]
		r := newRegistry(s, kind)
		es.registries[r.resource] = r
		if target := es.registries[kind.Alias]; target != nil && kind.Alias.Resource != "" {
			target.shownBy = append(target.shownBy, r.resource)
			r.shownBy = append(r.shownBy, kind.Alias)
		}
		served := kind.Served
		if len(served) == 0 {
			served = []string{kind.Kind.Version}
		}
		for _, version := range served {
			e := newEndpoint(r, version)
			es.builtin[e.gvr] = e
			if es.on.Serves(e.gvr) {
				es.versions[e.gvr.GroupVersion()] = true
			}
		}
	}
	return es
}

// hook sets what one kind does besides, within its writes.
func (es *endpoints) hook(group, resource string, set func(*hooks)) {
	if r := es.registry(group, resource); r != nil {
		set(&r.hooks)
	}
}

// join adds kinds that are found while the server runs.
func (es *endpoints) join(p kindProvider) {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.dynamic = append(es.dynamic, p)
}

func (es *endpoints) find(gvr schema.GroupVersionResource) (*endpoint, bool) {
	if e, ok := es.builtin[gvr]; ok {
		return e, true
	}
	if es.serves(gvr.GroupVersion()) {
		return nil, false
	}
	es.mu.RLock()
	defer es.mu.RUnlock()
	for _, p := range es.dynamic {
		if e, ok := p.endpoint(gvr); ok {
			return e, true
		}
	}
	return nil, false
}

// all returns the endpoints of all built-in kinds and of the custom kinds that have been used.
func (es *endpoints) all() []*endpoint {
	list := slices.Collect(maps.Values(es.builtin))
	es.mu.RLock()
	defer es.mu.RUnlock()
	for _, p := range es.dynamic {
		list = append(list, p.inUse()...)
	}
	return list
}

// findServed is find without the resources that are turned off for clients.
func (es *endpoints) findServed(gvr schema.GroupVersionResource) (*endpoint, bool) {
	if !es.on.Serves(gvr) {
		return nil, false
	}
	return es.find(gvr)
}

// serves reports whether a built-in kind is served in the group version. Custom kinds cannot add to
// such a group version.
func (es *endpoints) serves(gv schema.GroupVersion) bool { return es.versions[gv] }

// stores reports whether a built-in kind stores its objects under the prefix.
func (es *endpoints) stores(prefix string) bool {
	for _, r := range es.registries {
		if r.kind.Prefix == prefix {
			return true
		}
	}
	return false
}

// hasGroup reports whether a built-in kind of the group is served.
func (es *endpoints) hasGroup(group string) bool {
	for gvr := range es.builtin {
		if gvr.Group == group && es.on.Serves(gvr) {
			return true
		}
	}
	return false
}

// registry returns the registry of a built-in kind; nil if the table does not have it.
func (es *endpoints) registry(group, resource string) *registry {
	return es.registries[schema.GroupResource{Group: group, Resource: resource}]
}

// hub returns the endpoint of a built-in kind in its storage version.
func (es *endpoints) hub(group, resource string) (*endpoint, bool) {
	r := es.registry(group, resource)
	if r == nil {
		return nil, false
	}
	return es.find(r.kind.GVR())
}

// ofEvents reports whether the endpoint serves Events; a custom kind may have the same plural.
func (e *endpoint) ofEvents() bool {
	return e.custom == nil && e.resource.Resource == "events"
}

// allows reports whether the endpoint has the verb on the object itself or the subresource.
func (e *endpoint) allows(verb, subresource string) bool {
	if subresource == "" {
		return e.kind.HasVerb(verb)
	}
	sub, ok := e.kind.Subresource(subresource)
	return ok && slices.Contains(sub.Verbs, verb)
}
