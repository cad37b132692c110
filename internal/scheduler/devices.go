package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

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
	claims    client.ViewOf[*resourcev1.ResourceClaim]
	classes   client.ViewOf[*resourcev1.DeviceClass]
	slices    client.ViewOf[*resourcev1.ResourceSlice]
	selectors *cel.Cache

	mu       sync.RWMutex
	inFlight map[types.UID]*resourcev1.AllocationResult // by claim
	changed  chan struct{}                              // closed when a claim changes
}

func newDevices(ctx context.Context, c client.Interface, wakePods wakeFunc) *devices {
	d := &devices{
		wakePods: wakePods, selectors: cel.NewCache(keptSelectors, cel.Features{EnableConsumableCapacity: true}),
		inFlight: map[types.UID]*resourcev1.AllocationResult{}, changed: make(chan struct{}),
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
	hasClaims := func(p *framework.PodInfo) bool { return len(p.Pod.Spec.ResourceClaims) > 0 }
	d.opened.follow(ctx,
		follow(ctx, d.claims, func(e client.TypedEvent[*resourcev1.ResourceClaim]) {
			d.notify()
			released := e.Old != nil && e.Old.Status.Allocation != nil && (e.Type == client.Deleted || e.Object.Status.Allocation == nil)
			switch {
			case released: // any pod may take its devices
				d.wakePods(framework.ResourceClaimChanged, hasClaims)
			case e.Type != client.Deleted:
				d.wakePods(framework.ResourceClaimChanged, usesResourceClaim(e.Object))
			}
		}),
		follow(ctx, d.classes, func(e client.TypedEvent[*resourcev1.DeviceClass]) {
			if e.Type != client.Deleted {
				d.wakePods(framework.DeviceClassChanged, hasClaims)
			}
		}),
		follow(ctx, d.slices, func(e client.TypedEvent[*resourcev1.ResourceSlice]) {
			// The deletion of a slice can make a pool complete.
			d.wakePods(framework.DevicesChanged, hasClaims)
		}),
	)
	return nil
}

// usesResourceClaim returns whether a pod names the claim, or the claim was made for it.
func usesResourceClaim(claim *resourcev1.ResourceClaim) func(*framework.PodInfo) bool {
	return func(p *framework.PodInfo) bool {
		if p.Pod.Namespace != claim.Namespace {
			return false
		}
		for _, ref := range p.Pod.Spec.ResourceClaims {
			if ref.ResourceClaimName != nil && *ref.ResourceClaimName == claim.Name {
				return true
			}
		}
		for _, s := range p.Pod.Status.ResourceClaimStatuses {
			if s.ResourceClaimName != nil && *s.ResourceClaimName == claim.Name {
				return true
			}
		}
		return false
	}
}

func (d *devices) notify() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.changed)
	d.changed = make(chan struct{})
}

// next returns a channel that is closed at the next change of a claim.
func (d *devices) next() <-chan struct{} {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.changed
}

// assume reserves devices for a claim until forget.
func (d *devices) assume(claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight[claim.UID] = allocation
}

// forget ends the assumption of exactly this allocation. Meanwhile the claim may have lost its
// devices, and another pod may have assumed others for it: these stay.
func (d *devices) forget(claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inFlight[claim.UID] == allocation {
		delete(d.inFlight, claim.UID)
	}
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

func (d *devices) Class(name string) (*resourcev1.DeviceClass, bool) { return d.classes.Get("", name) }
func (d *devices) Classes() []*resourcev1.DeviceClass                { return d.classes.List("", nil) }
func (d *devices) Slices() []*resourcev1.ResourceSlice               { return d.slices.List("", nil) }
func (d *devices) Selectors() *cel.Cache                             { return d.selectors }

// Allocated returns the devices of all claims. A claim that is written meanwhile counts once:
// devices are a set, or it counts as in flight.
func (d *devices) Allocated() structured.AllocatedState {
	d.mu.RLock()
	defer d.mu.RUnlock()
	t := newTally()
	for _, allocation := range d.inFlight {
		t.add(allocation)
	}
	for _, claim := range d.claims.List("", nil) {
		if _, counted := d.inFlight[claim.UID]; !counted && claim.Status.Allocation != nil {
			t.add(claim.Status.Allocation)
		}
	}
	return structured.AllocatedState(t)
}

type tally structured.AllocatedState

func newTally() tally {
	return tally{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
}

func (t tally) add(allocation *resourcev1.AllocationResult) {
	for _, r := range allocation.Devices.Results {
		if r.AdminAccess != nil && *r.AdminAccess {
			continue // it only watches devices of others
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			t.AllocatedDevices.Insert(id)
			continue
		}
		t.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		t.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
}
