// Package gc deletes objects whose owners are gone, and carries out foreground deletion and
// orphaning.
//
// Words. An ownerReference of an object names its owner; the object is a dependent of that owner.
// An owner is absent if a fresh GET finds nothing, or an object with another UID. An owner waits if
// it is being deleted in the foreground and has blocking dependents (blockOwnerDeletion) left. Any
// other owner is solid.
//
// There is no graph that could be stale. Metadata-only Views of all kinds are indexed by the
// owners' UIDs, so finding an owner or its dependents is a lookup.
//
// Nothing is deleted because of a View alone. The object and its absent owners are read fresh
// first, and the deletion carries UID and resourceVersion. Before an owner is released, its
// dependents must be complete: kinds whose Views have not seen the owner's deletion are listed from
// the server. Only foreground deletion goes ahead without the kinds that cannot be listed
// (fresh.go).
//
// In: metadata of all kinds, CustomResourceDefinitions, APIServices, discovery. Out: deletions and
// patches of metadata, and Events about invalid owner references.
package gc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Controller is the garbage collector.
var Controller = controller.Starter{Name: "garbage-collector-controller", Account: "generic-garbage-collector", Run: run}

const (
	workers = 20
	byOwner = "gc-owner-uid"
	// The release of an owner waits so long for Views, then asks the server.
	syncLimit = time.Second
	listLimit = 30 * time.Second // for one page of a list
	listTotal = 30 * time.Minute // for all pages of a list

	syncPatience = 30 * time.Second // as upstream
)

// item identifies an object to process. The UID distinguishes it from a later object of the same
// name.
type item struct {
	gvr             schema.GroupVersionResource
	namespace, name string
	uid             types.UID
}

func (i item) String() string {
	return fmt.Sprintf("%s %s/%s (%s)", i.gvr.GroupResource(), i.namespace, i.name, i.uid)
}

// watched is a kind that the collector watches, or will watch once the kind can be listed.
type watched struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	namespaced bool
	view       atomic.Pointer[client.View] // nil until the kind could be listed
	stop       context.CancelFunc
	opened     chan struct{} // closed when the View is open, or will never be
	// The View's initial list is complete; nil without a View, as is ended.
	synced <-chan struct{}
	ended  <-chan struct{}
	held   map[item]bool // owners to retry when the kind can be listed; guarded by collector.mu
}

// shown returns the kind's View, and false while there is none.
func (k *watched) shown() (client.View, bool) {
	if v := k.view.Load(); v != nil {
		return *v, true
	}
	return nil, false
}

// find looks up an object in the View.
func (k *watched) find(namespace, name string) (metav1.Object, bool) {
	if view, ok := k.shown(); ok {
		if obj, ok := view.Get(namespace, name); ok {
			return accessor(obj), true
		}
	}
	return nil, false
}

// close stops the watch and waits for its end.
func (k *watched) close() {
	k.stop()
	<-k.opened
	if k.ended != nil {
		<-k.ended
	}
}

type collector struct {
	env      controller.Env
	work     *controller.Work[item]
	patience time.Duration  // how long the start and the log wait for kinds that cannot be listed
	limit    time.Duration  // listLimit
	total    time.Duration  // listTotal
	waiting  sync.WaitGroup // goroutines of retryWith, started by the queue's workers only

	// Tells which groups extension servers serve; set once.
	services client.ViewOf[*apiregistrationv1.APIService]

	mu     sync.RWMutex // guards the maps
	kinds  map[schema.GroupKind]*watched
	mapped map[schema.GroupKind]*watched // every kind, also those that cannot be watched
}

// run starts without the kinds that cannot be listed in time, as upstream does. A broken conversion
// webhook or an absent extension server must not delay the other kinds.
func run(ctx context.Context, env controller.Env) error {
	return (&collector{env: env, patience: syncPatience, limit: listLimit, total: listTotal}).run(ctx)
}

func (c *collector) run(ctx context.Context) error {
	c.kinds, c.mapped = map[schema.GroupKind]*watched{}, map[schema.GroupKind]*watched{}
	c.work = controller.NewWorkOf(c.env, "garbage-collector-controller", c.process)
	services, err := client.Open[*apiregistrationv1.APIService](ctx, c.env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open API services: %w", err)
	}
	c.services = services
	if err := c.refresh(ctx); err != nil {
		// The kinds discovered so far are watched. The others follow when their definition changes
		// or with the next attempt.
		c.env.Logger().Warn("garbage collector cannot discover all kinds yet", "error", err)
	}
	c.waitForKinds(ctx)
	var group sync.WaitGroup
	group.Go(func() { c.followDefinitions(ctx) })
	c.work.Run(ctx, workers)
	group.Wait()
	c.waiting.Wait()
	for _, k := range c.all() {
		k.close()
	}
	return nil
}

// waitForKinds waits for the Views. Without the View of an owner, each lookup of it would cost a
// request.
func (c *collector) waitForKinds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	for _, k := range c.all() {
		select {
		case <-k.opened:
		case <-ctx.Done():
			return
		}
		if k.synced == nil {
			continue
		}
		select {
		case <-k.synced:
		case <-ctx.Done():
			return
		}
	}
}

func (c *collector) all() []*watched {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]*watched, 0, len(c.kinds))
	for _, k := range c.kinds {
		out = append(out, k)
	}
	return out
}

// kind returns the kind that an owner reference names, whatever the version.
func (c *collector) kind(apiVersion, kind string) (*watched, bool) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, ok := c.mapped[schema.GroupKind{Group: gv.Group, Kind: kind}]
	return k, ok
}

// dependents returns the objects of all kinds that name the UID as an owner.
func (c *collector) dependents(uid types.UID) []dependent {
	var out []dependent
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, k := range c.kinds {
		out = append(out, cachedDependents(k, uid)...)
	}
	return out
}

type dependent struct {
	kind *watched
	metav1.Object
}

func (d dependent) item() item {
	return item{gvr: d.kind.gvr, namespace: d.GetNamespace(), name: d.GetName(), uid: d.GetUID()}
}

// blocks reports whether the object delays the foreground deletion of the owner.
func blocks(obj metav1.Object, owner types.UID) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.UID == owner && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
	})
}

// onEvent queues the objects that an event concerns.
func (c *collector) onEvent(k *watched, e client.Event) {
	obj := accessor(e.Object)
	self := item{gvr: k.gvr, namespace: obj.GetNamespace(), name: obj.GetName(), uid: obj.GetUID()}
	if e.Type == client.Deleted {
		for _, d := range c.dependents(self.uid) {
			c.work.AddBecause(d.item(), e.Revision)
		}
		c.addWaitingOwners(obj, obj.GetOwnerReferences(), e.Revision)
		return
	}
	if obj.GetDeletionTimestamp() != nil {
		if hasFinalizer(obj, metav1.FinalizerDeleteDependents) || hasFinalizer(obj, metav1.FinalizerOrphanDependents) {
			c.work.AddBecause(self, e.Revision)
		}
	} else if len(obj.GetOwnerReferences()) > 0 && (e.Old == nil || !sameOwners(accessor(e.Old), obj)) {
		c.work.AddBecause(self, e.Revision)
	}
	if e.Old != nil {
		if old := accessor(e.Old); !sameOwners(old, obj) {
			c.addWaitingOwners(old, old.GetOwnerReferences(), e.Revision)
		}
	}
}

// addWaitingOwners queues the owners in the foreground deletion that wait for this dependent, which
// may have been the last one. revision is that of the change.
func (c *collector) addWaitingOwners(obj metav1.Object, refs []metav1.OwnerReference, revision int64) {
	for _, ref := range refs {
		k, ok := c.kind(ref.APIVersion, ref.Kind)
		if !ok {
			continue
		}
		namespace := ""
		if k.namespaced {
			namespace = obj.GetNamespace()
		}
		if owner, ok := k.find(namespace, ref.Name); ok && owner.GetUID() == ref.UID && waits(owner) {
			c.work.AddBecause(item{gvr: k.gvr, namespace: namespace, name: ref.Name, uid: ref.UID}, revision)
		}
	}
}

// waits reports whether the object is being deleted in the foreground.
func waits(obj metav1.Object) bool {
	return obj.GetDeletionTimestamp() != nil && hasFinalizer(obj, metav1.FinalizerDeleteDependents)
}

func hasFinalizer(obj metav1.Object, name string) bool {
	return slices.Contains(obj.GetFinalizers(), name)
}

func sameOwners(a, b metav1.Object) bool {
	return slices.EqualFunc(a.GetOwnerReferences(), b.GetOwnerReferences(), func(x, y metav1.OwnerReference) bool {
		bx, by := x.BlockOwnerDeletion != nil && *x.BlockOwnerDeletion, y.BlockOwnerDeletion != nil && *y.BlockOwnerDeletion
		return x.UID == y.UID && x.Name == y.Name && x.Kind == y.Kind && x.APIVersion == y.APIVersion && bx == by
	})
}

func accessor(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("gc: %T has no metadata: %v", obj, err))
	}
	return m
}
