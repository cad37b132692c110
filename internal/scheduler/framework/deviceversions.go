package framework

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// DeviceVersions numbers the changes of devices. Two searches for the same claims on the same node
// give the same result if the node has the same DeviceVersion. One goroutine uses it.
type DeviceVersions struct {
	slices   uint64
	counters bool
	homes    map[poolID]string // the node that sees the pool; "" if several may see it
	local    map[string]uint64 // by node
	shared   uint64
}

// DeviceVersion is the version of the devices that a node sees.
type DeviceVersion struct {
	// Slices counts the changes of ResourceSlices, Local those of allocations from the node's own
	// pools, and Shared those of allocations from the pools of several nodes.
	Slices, Local, Shared uint64
}

type poolID struct{ driver, name string }

// NewDeviceVersions makes one without slices.
func NewDeviceVersions() *DeviceVersions { return &DeviceVersions{local: map[string]uint64{}} }

// SetSlices tells all ResourceSlices after a change.
func (v *DeviceVersions) SetSlices(slices []*resourcev1.ResourceSlice) {
	v.slices++
	v.counters, v.homes = false, make(map[poolID]string, len(v.homes))
	clear(v.local)
	for _, s := range slices {
		id, home := poolID{s.Spec.Driver, s.Spec.Pool.Name}, ptr.Deref(s.Spec.NodeName, "")
		if other, ok := v.homes[id]; ok && other != home {
			home = ""
		}
		v.homes[id] = home
		v.counters = v.counters || len(s.Spec.SharedCounters) > 0
	}
}

// Touch tells that an allocation has begun or ended. Pools without slices have no version: nodes
// do not see their devices.
func (v *DeviceVersions) Touch(allocation *resourcev1.AllocationResult) {
	for i := range allocation.Devices.Results {
		r := &allocation.Devices.Results[i]
		switch home, ok := v.homes[poolID{r.Driver, r.Pool}]; {
		case !ok:
		case home == "":
			v.shared++
		default:
			v.local[home]++
		}
	}
}

// HaveCounters reports whether some devices share counters (KEP-4815).
func (v *DeviceVersions) HaveCounters() bool { return v.counters }

// Slices returns the number of changes of ResourceSlices.
func (v *DeviceVersions) Slices() uint64 { return v.slices }

// Of returns the version of the devices that a node sees.
func (v *DeviceVersions) Of(node string) DeviceVersion {
	return DeviceVersion{Slices: v.slices, Local: v.local[node], Shared: v.shared}
}
