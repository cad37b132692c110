package scheduler

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// allocations counts the devices of claims. Claims that may have changed are noted, and looked up
// when a decision asks for the devices: a decision costs no more with many claims. Its owner's
// mutex guards it.
type allocations struct {
	tally   framework.Tally
	counted map[types.UID]*resourcev1.AllocationResult
	changed map[types.UID]types.NamespacedName
}

func newAllocations() allocations {
	return allocations{tally: framework.NewTally(), counted: map[types.UID]*resourcev1.AllocationResult{}, changed: map[types.UID]types.NamespacedName{}}
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
		if before != nil {
			a.tally.Remove(before)
			delete(a.counted, uid)
		}
		if now != nil {
			a.tally.Add(now)
			a.counted[uid] = now
		}
	}
	clear(a.changed)
	return a.tally.State()
}
