package apiserver

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/resource"
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

func newEndpoints(s *Server) *endpoints {
	table := api.Kinds()
	es := &endpoints{
		builtin:    make(map[schema.GroupVersionResource]*endpoint, len(table)),
		registries: make(map[schema.GroupResource]*registry, len(table)),
		scales:     newScales(s),
		on:         s.cfg.Switches,
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
	if r := es.registry("", "services"); r != nil {
		r.hooks = s.serviceHooks()
	}
	if r := es.registry(apiextensionsv1.GroupName, "customresourcedefinitions"); r != nil {
		r.hooks.deleting = func(obj runtime.Object, now metav1.Time) {
			custom.MarkDeleted(obj.(*apiextensionsv1.CustomResourceDefinition), now)
		}
	}
	if r := es.registry(resourcev1.GroupName, "resourceslices"); r != nil {
		r.hooks.stamp = stampTaints
	}
	if s.cfg.NoPrivileged {
		es.refusePrivileged()
	}
	for _, name := range []string{"resourceclaims", "resourceclaimtemplates"} {
		if r := es.registry(resourcev1.GroupName, name); r != nil {
			r.hooks.fields = func(ctx context.Context, a *admission.Attributes) (field.ErrorList, error) {
				return s.admission().ValidateFields(ctx, a)
			}
		}
	}
	if r := es.registry("", "persistentvolumes"); r != nil {
		r.hooks.update = func(_ context.Context, _ *txn, obj, old runtime.Object) error {
			stampPhase(obj, old, s.now())
			return nil
		}
	}
	if s.custom != nil {
		es.dynamic = append(es.dynamic, s.custom)
	}
	return es
}

// refusePrivileged reports privileged containers together with other field errors, as upstream
// does. Writes to status and scale are not checked.
func (es *endpoints) refusePrivileged() {
	for _, r := range es.registries {
		if !resource.MakesPods(r.kind.New()) {
			continue
		}
		r.hooks.fields = func(_ context.Context, a *admission.Attributes) (field.ErrorList, error) {
			if a.Subresource == "status" || a.Subresource == "scale" {
				return nil, nil
			}
			return resource.Privileged(a.Object), nil
		}
	}
}

// stampTaints sets the time of device taints that have none.
func stampTaints(obj runtime.Object, now metav1.Time) {
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return
	}
	for i := range slice.Spec.Devices {
		taints := slice.Spec.Devices[i].Taints
		for j := range taints {
			if taints[j].TimeAdded == nil {
				taints[j].TimeAdded = &now
			}
		}
	}
}

// stampPhase sets the time of a phase change of a volume, unless the writer has set it.
func stampPhase(obj, old runtime.Object, now metav1.Time) {
	v, ok := obj.(*corev1.PersistentVolume)
	before, same := old.(*corev1.PersistentVolume)
	if ok && same && v.Status.Phase != before.Status.Phase && v.Status.LastPhaseTransitionTime.Equal(before.Status.LastPhaseTransitionTime) {
		v.Status.LastPhaseTransitionTime = &now
	}
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
