package dra

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
)

func TestDeviceStatusesAreClearedWithTheAllocation(t *testing.T) {
	s := ResourceClaimStrategy()
	old := &resourcev1.ResourceClaim{}
	old.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d", Pool: "p", Device: "a"}}}}
	old.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d", Pool: "p", Device: "a"}}
	freed := old.DeepCopy()
	freed.Status.Allocation = nil
	s.PrepareStatus(freed, old)
	if len(freed.Status.Devices) > 0 {
		t.Errorf("left: %+v", freed.Status.Devices)
	}
	kept := old.DeepCopy()
	s.PrepareStatus(kept, old)
	if len(kept.Status.Devices) != 1 {
		t.Error("what is said of allocated devices is gone")
	}
}
