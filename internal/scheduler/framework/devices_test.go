package framework

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// TestSharedDevicesWithoutConsumedCapacity checks that only shares of a capacity count as consumed:
// the allocator charges shared counters again for a device without consumed capacity.
func TestSharedDevicesWithoutConsumedCapacity(t *testing.T) {
	share := func(id types.UID, consumed map[resourcev1.QualifiedName]resource.Quantity) *resourcev1.AllocationResult {
		return &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Driver: "d", Pool: "p", Device: "x", ShareID: &id, ConsumedCapacity: consumed},
		}}}
	}
	plain, consuming := share("1", nil), share("2", map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("1")})
	tally := NewTally()
	check := func(after string, shares, capacities int) {
		t.Helper()
		s := tally.State()
		if len(s.AllocatedSharedDeviceIDs) != shares || len(s.AggregatedCapacity) != capacities {
			t.Errorf("%s: %d shares, %d devices with consumed capacity, want %d and %d", after, len(s.AllocatedSharedDeviceIDs), len(s.AggregatedCapacity), shares, capacities)
		}
	}
	tally.Add(plain)
	check("a plain share", 1, 0)
	tally.Add(consuming)
	check("both", 2, 1)
	tally.Remove(plain)
	check("the consuming share", 1, 1)
	tally.Remove(consuming)
	check("none", 0, 0)
}
