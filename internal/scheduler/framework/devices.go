package framework

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Devices is the cluster's dynamic resources as decisions see them (KEP-4381). Objects are shared and read-only.
type Devices interface {
	// Claim is a claim as it is now; beingAllocated: it was decided for another pod what the claim gets, and is not written yet. Both are
	// of one moment: a claim that is neither allocated nor being allocated is free.
	Claim(namespace, name string) (claim *resourcev1.ResourceClaim, beingAllocated, ok bool)
	Class(name string) (*resourcev1.DeviceClass, bool)
	Classes() []*resourcev1.DeviceClass
	Slices() []*resourcev1.ResourceSlice
	// Allocated is what all claims have, those being allocated too.
	Allocated() structured.AllocatedState
	// Selectors keeps compiled selectors.
	Selectors() *cel.Cache
}

// DynamicResources is the name of the plugin that allocates devices; its State is a DeviceDecisions.
const DynamicResources = "DynamicResources"

// DeviceDecisions holds what DynamicResources found.
type DeviceDecisions interface {
	// Claims are the pod's claims, as they were when it was decided.
	Claims() []*resourcev1.ResourceClaim
	// On is what the claims without an allocation get on a node, by the claim's name.
	On(node string) map[string]*resourcev1.AllocationResult
	// InTheWay are allocated claims that can not be used on some node.
	InTheWay() []*resourcev1.ResourceClaim
}
