package scheduler

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// allocations counts the devices of claims. Claims that may have changed are noted, and looked up
// when a decision asks for the devices: a decision costs no more with many claims. Its owner's
// mutex guards it.
type allocations struct {
	tally    framework.Tally
	versions *framework.DeviceVersions
	counted  map[types.UID]*resourcev1.AllocationResult
	changed  map[types.UID]types.NamespacedName
}

func newAllocations() allocations {
	return allocations{
		tally: framework.NewTally(), versions: framework.NewDeviceVersions(),
		counted: map[types.UID]*resourcev1.AllocationResult{}, changed: map[types.UID]types.NamespacedName{},
	}
}

// note notes that the allocation of a claim may have changed.
func (a *allocations) note(claim *resourcev1.ResourceClaim) {
	a.changed[claim.UID] = types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

// state counts the noted claims; lookUp returns a claim's allocation, or nil. The result counts
// until the next call.
func (a *allocations) state(lookUp func(types.UID, types.NamespacedName) *resourcev1.AllocationResult) structured.AllocatedState {
	for uid, name := range a.changed {
		now, before := lookUp(uid, name), a.counted[uid]
		if now == before {
			continue
		}
		if now != nil && before != nil && sameDevices(now, before) {
			a.counted[uid] = now // it is written now
			continue
		}
		if before != nil {
			a.tally.Remove(before)
			a.versions.Touch(before)
			delete(a.counted, uid)
		}
		if now != nil {
			a.tally.Add(now)
			a.versions.Touch(now)
			a.counted[uid] = now
		}
	}
	clear(a.changed)
	return a.tally.State()
}

// sameDevices reports whether two allocations count the same. It may be false for equal ones.
func sameDevices(a, b *resourcev1.AllocationResult) bool {
	return slices.EqualFunc(a.Devices.Results, b.Devices.Results, func(x, y resourcev1.DeviceRequestAllocationResult) bool {
		return x.Driver == y.Driver && x.Pool == y.Pool && x.Device == y.Device && ptr.Equal(x.AdminAccess, y.AdminAccess) &&
			x.ShareID == nil && y.ShareID == nil
	})
}
