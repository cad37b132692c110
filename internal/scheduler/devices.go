package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// keptSelectors is the number of compiled selectors to keep, as upstream.
const keptSelectors = 10

// devices shows the cluster's dynamic resources as if the decisions that are not written yet were.
// As in storage, its Views are opened for the first pod with a resource claim. Safe for concurrent
// use.
type devices struct {
	opened    lazyViews
	wakePods  wakeFunc
	wakeUsers func(*resourcev1.ResourceClaim) // wakes the waiting pods that use a claim
	claims    client.ViewOf[*resourcev1.ResourceClaim]
	classes   client.ViewOf[*resourcev1.DeviceClass]
	slices    client.ViewOf[*resourcev1.ResourceSlice]
	selectors *cel.Cache

	mu           sync.RWMutex
	inFlight     map[types.UID]*resourcev1.AllocationResult // by claim
	counted      allocations
	changes      notices // of claims
	listed       []*resourcev1.ResourceSlice
	slicesChange bool // since they were listed
}

func newDevices(ctx context.Context, c client.Interface, wakePods wakeFunc, wakeUsers func(*resourcev1.ResourceClaim)) *devices {
	d := &devices{
		wakePods: wakePods, wakeUsers: wakeUsers, selectors: cel.NewCache(keptSelectors, cel.Features{EnableConsumableCapacity: true}),
		inFlight: map[types.UID]*resourcev1.AllocationResult{}, counted: newAllocations(),
	}
	d.opened.open = func() error { return d.open(ctx, c) }
	return d
}

// use opens the Views at the first call.
func (d *devices) use() (framework.Devices, error) {
	if err := d.opened.openOnce(); err != nil {
		return nil, fmt.Errorf("open the views of dynamic resources: %w", err)
	}
	return d, nil
}

func (d *devices) open(ctx context.Context, c client.Interface) error {
	if err := cmp.Or(openAs(ctx, c, &d.claims), openAs(ctx, c, &d.classes), openAs(ctx, c, &d.slices)); err != nil {
		return err
	}
	d.opened.follow(ctx,
		follow(ctx, d.claims, func(e client.TypedEvent[*resourcev1.ResourceClaim]) {
			d.notify(e.Object)
			released := e.Old != nil && e.Old.Status.Allocation != nil && (e.Type == client.Deleted || e.Object.Status.Allocation == nil)
			switch {
			case released: // any pod may take its devices
				d.wakePods(framework.ResourceClaimChanged, wantsDevices)
			case e.Type == client.Modified && equality.Semantic.DeepEqual(&e.Old.Status, &e.Object.Status):
				// As upstream: no other change of a claim helps a pod.
			case e.Type != client.Deleted || framework.IsExtendedClaim(e.Object):
				d.wakeUsers(e.Object)
			}
		}),
		follow(ctx, d.classes, func(e client.TypedEvent[*resourcev1.DeviceClass]) {
			if e.Type != client.Deleted {
				d.wakePods(framework.DeviceClassChanged, wantsDevices)
			}
		}),
		follow(ctx, d.slices, func(e client.TypedEvent[*resourcev1.ResourceSlice]) {
			d.noteSlices()
			// The deletion of a slice can make a pool complete.
			d.wakePods(framework.DevicesChanged, wantsDevices)
		}),
	)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, claim := range d.claims.List("", nil) {
		d.counted.note(claim)
	}
	d.slicesChange = true
	return nil
}

// noteSlices notes that the listed slices are out of date.
func (d *devices) noteSlices() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slicesChange = true
}

// wantsDevices reports whether a pod has claims, or extended resources that devices may provide.
func wantsDevices(p *framework.PodInfo) bool {
	return len(p.Pod.Spec.ResourceClaims) > 0 || len(framework.ExtendedRequests(p)) > 0
}

// notify notes the change of a claim, and wakes the goroutines that wait for its devices.
func (d *devices) notify(claim *resourcev1.ResourceClaim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counted.note(claim)
	d.changes.notify(claimKey(claim.Namespace, claim.Name))
}

// assume reserves devices for a claim until forget.
func (d *devices) assume(claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight[claim.UID] = allocation
	d.counted.note(claim)
}

// forget ends the assumption of exactly this allocation. Meanwhile the claim may have lost its
// devices, and another pod may have assumed others for it: these stay.
func (d *devices) forget(claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inFlight[claim.UID] == allocation {
		delete(d.inFlight, claim.UID)
	}
	d.counted.note(claim)
}

// Claim reads the View under the lock: a claim that stops being in flight meanwhile still counts as
// in flight.
func (d *devices) Claim(namespace, name string) (claim *resourcev1.ResourceClaim, beingAllocated, ok bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if claim, ok = d.claims.Get(namespace, name); ok {
		_, beingAllocated = d.inFlight[claim.UID]
	}
	return claim, beingAllocated, ok
}

func (d *devices) ExtendedClaim(pod *corev1.Pod) *resourcev1.ResourceClaim {
	return framework.ExtendedClaimOf(pod, d.claims.List(pod.Namespace, nil))
}

func (d *devices) Class(name string) (*resourcev1.DeviceClass, bool) { return d.classes.Get("", name) }
func (d *devices) Classes() []*resourcev1.DeviceClass                { return d.classes.List("", nil) }
func (d *devices) Selectors() *cel.Cache                             { return d.selectors }

// Inventory looks at the Views only for slices and claims that may have changed. Only the
// scheduler's goroutine calls it.
func (d *devices) Inventory() framework.Inventory {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slicesChange {
		d.slicesChange = false
		d.listed = d.slices.List("", nil)
		d.counted.versions.SetSlices(d.listed)
	}
	allocated := d.counted.state(func(uid types.UID, name types.NamespacedName) *resourcev1.AllocationResult {
		if allocation, ok := d.inFlight[uid]; ok {
			return allocation
		}
		if claim, ok := d.claims.Get(name.Namespace, name.Name); ok && claim.UID == uid {
			return claim.Status.Allocation
		}
		return nil
	})
	return framework.Inventory{Slices: d.listed, Allocated: allocated, Versions: d.counted.versions}
}
