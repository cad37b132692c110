package framework

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
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
	// ExtendedClaim returns the claim that exists for the pod's extended resources; nil if there is
	// none.
	ExtendedClaim(pod *corev1.Pod) *resourcev1.ResourceClaim
	Class(name string) (*resourcev1.DeviceClass, bool)
	Classes() []*resourcev1.DeviceClass
	// Inventory returns all devices, and which of them are allocated.
	Inventory() Inventory
	// Selectors returns the cache of compiled selectors.
	Selectors() *cel.Cache
}

// Inventory is the devices of the cluster. It counts until the next call of Devices.Inventory.
type Inventory struct {
	Slices []*resourcev1.ResourceSlice
	// Allocated has the devices of all claims, also of those being allocated.
	Allocated structured.AllocatedState
	// Versions numbers the changes of Slices and Allocated. Without Versions, results of searches
	// cannot be kept. With Versions, all calls of Inventory return the same maps in Allocated.
	Versions *DeviceVersions
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
	// Extended returns the claim to create for the pod's extended resources if the pod goes to the
	// node; nil if none is needed there.
	Extended(node string) *ExtendedClaim
}

// ExtendedClaim is the claim that the scheduler creates for extended resources of a pod that
// device classes provide (KEP-5004). On counts its devices under ExtendedClaimName.
type ExtendedClaim struct {
	// Claim is the object to create. Its name and UID are temporary.
	Claim *resourcev1.ResourceClaim
	// Mappings assign requests of the claim to resources of containers.
	Mappings []corev1.ContainerExtendedResourceRequest
	// Created is the object once it exists.
	Created *resourcev1.ResourceClaim
}

// ExtendedClaimName names a claim for extended resources that does not exist yet. No object can
// have the name.
const ExtendedClaimName = "<extended-resources>"

// ExtendedRequests returns the names of the extended resources that a pod asks for, sorted. Device
// classes may provide them.
func ExtendedRequests(pod *PodInfo) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name, want := range pod.Requests.Scalar {
		native := strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix) || !strings.Contains(string(name), "/")
		if want != 0 && (!native || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// IsExtendedClaim reports whether a scheduler has created the claim for a pod's extended resources.
func IsExtendedClaim(claim *resourcev1.ResourceClaim) bool {
	return claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true"
}

// ExtendedClaimOf finds the claim for the pod's extended resources among those of its namespace.
func ExtendedClaimOf(pod *corev1.Pod, claims []*resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	for _, claim := range claims {
		if owner := metav1.GetControllerOfNoCopy(claim); IsExtendedClaim(claim) && owner != nil && owner.UID == pod.UID {
			return claim
		}
	}
	return nil
}

// ClassOf returns the device class that provides an extended resource: the class in the resource's
// name, or the newest one with the name in its spec.
func ClassOf(devices Devices, resource corev1.ResourceName) (*resourcev1.DeviceClass, bool) {
	if class, ok := strings.CutPrefix(string(resource), resourcev1.ResourceDeviceClassPrefix); ok {
		return devices.Class(class)
	}
	var found *resourcev1.DeviceClass
	for _, class := range devices.Classes() {
		if name := class.Spec.ExtendedResourceName; name == nil || *name != string(resource) {
			continue
		}
		if found == nil || cmp.Or(class.CreationTimestamp.Compare(found.CreationTimestamp.Time), strings.Compare(found.Name, class.Name)) > 0 {
			found = class
		}
	}
	return found, found != nil
}

// ErrDeviceFailed means that a device has met one of its binding failure conditions.
var ErrDeviceFailed = errors.New("failed binding conditions check")

// DevicesReady reports whether all devices of the claim meet their conditions. An error means that
// one has failed.
func DevicesReady(claim *resourcev1.ResourceClaim) (bool, error) {
	ready := true
	for _, r := range claim.Status.Allocation.Devices.Results {
		if len(r.BindingConditions) == 0 {
			continue
		}
		status := statusOf(claim, &r)
		if status == nil {
			ready = false
			continue
		}
		for _, condition := range r.BindingFailureConditions {
			if apimeta.IsStatusConditionTrue(status.Conditions, condition) {
				return false, fmt.Errorf("%w: device %s: %s", ErrDeviceFailed, r.Device, condition)
			}
		}
		for _, condition := range r.BindingConditions {
			ready = ready && apimeta.IsStatusConditionTrue(status.Conditions, condition)
		}
	}
	return ready, nil
}

func statusOf(claim *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) *resourcev1.AllocatedDeviceStatus {
	for i := range claim.Status.Devices {
		s := &claim.Status.Devices[i]
		sameShare := (s.ShareID == nil) == (r.ShareID == nil) && (s.ShareID == nil || *s.ShareID == string(*r.ShareID))
		if s.Driver == r.Driver && s.Pool == r.Pool && s.Device == r.Device && sameShare {
			return s
		}
	}
	return nil
}

// Tally counts the devices that allocations use.
type Tally struct {
	state structured.AllocatedState
	// Numbers of allocations. Two should not have the same device, but a driver or another
	// scheduler may be wrong.
	exclusive map[structured.DeviceID]int
	shared    map[structured.SharedDeviceID]int
	sharers   map[structured.DeviceID]int
}

// NewTally counts no device.
func NewTally() Tally {
	return Tally{
		state: structured.AllocatedState{
			AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity: structured.NewConsumedCapacityCollection(),
		},
		exclusive: map[structured.DeviceID]int{}, shared: map[structured.SharedDeviceID]int{}, sharers: map[structured.DeviceID]int{},
	}
}

// State returns the counted devices. Later calls of Add and Remove change it.
func (t Tally) State() structured.AllocatedState { return t.state }

// Add counts the devices of an allocation.
func (t Tally) Add(allocation *resourcev1.AllocationResult) { t.count(allocation, 1) }

// Remove ends the count of an allocation.
func (t Tally) Remove(allocation *resourcev1.AllocationResult) { t.count(allocation, -1) }

func (t Tally) count(allocation *resourcev1.AllocationResult, sign int) {
	for i := range allocation.Devices.Results {
		r := &allocation.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue // it only watches devices of others
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			countIn(t.exclusive, t.state.AllocatedDevices, id, sign)
			continue
		}
		countIn(t.shared, t.state.AllocatedSharedDeviceIDs, structured.MakeSharedDeviceID(id, r.ShareID), sign)
		if r.ConsumedCapacity == nil {
			continue // as upstream: the allocator tells devices with consumed capacity apart
		}
		used, all := structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity), t.state.AggregatedCapacity
		switch t.sharers[id] += sign; {
		case sign > 0:
			all.Insert(used)
		case t.sharers[id] == 0:
			delete(t.sharers, id)
			delete(all, id)
		default:
			all[id].Sub(used.ConsumedCapacity) // the entry stays, even if it is zero
		}
	}
}

// countIn adds sign to the count of an id. The set has the ids with a count above zero.
func countIn[T comparable](counts map[T]int, set sets.Set[T], id T, sign int) {
	if counts[id] += sign; counts[id] > 0 {
		set.Insert(id)
	} else {
		delete(counts, id)
		set.Delete(id)
	}
}
