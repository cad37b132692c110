package framework

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Devices is the cluster's dynamic resources as decisions see them (KEP-4381). Objects are shared
// and read-only.
type Devices interface {
	// Claim returns a claim. beingAllocated means that another pod's decision allocates it and is
	// not written yet. Both values are of one moment: a claim that is neither allocated nor being
	// allocated is free.
	Claim(namespace, name string) (claim *resourcev1.ResourceClaim, beingAllocated, ok bool)
	Class(name string) (*resourcev1.DeviceClass, bool)
	Classes() []*resourcev1.DeviceClass
	Slices() []*resourcev1.ResourceSlice
	// Allocated returns the devices of all claims, also of those being allocated.
	Allocated() structured.AllocatedState
	// Selectors returns the cache of compiled selectors.
	Selectors() *cel.Cache
}

// DynamicResources is the name of the plugin that allocates devices. Its entry in State is a
// DeviceDecisions.
const DynamicResources = "DynamicResources"

// DeviceDecisions has the results of DynamicResources.
type DeviceDecisions interface {
	// Claims returns the pod's claims as they were at the decision.
	Claims() []*resourcev1.ResourceClaim
	// On returns what the unallocated claims get on a node, by the claim's name.
	On(node string) map[string]*resourcev1.AllocationResult
	// InTheWay returns the allocated claims that are not usable on some node.
	InTheWay() []*resourcev1.ResourceClaim
}
