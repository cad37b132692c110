package why

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// storage shows the Snapshot's volumes to the scheduler's plugins.
type storage struct{ s *Snapshot }

func found[T any](object T, p Presence) (T, bool) { return object, p == Found }

func (v storage) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	return found(get[*corev1.PersistentVolumeClaim](v.s, namespace, name))
}

func (v storage) Volume(name string) (*corev1.PersistentVolume, bool) {
	return found(get[*corev1.PersistentVolume](v.s, "", name))
}

func (v storage) VolumesOf(class string) (out []*corev1.PersistentVolume) {
	all, _ := list[*corev1.PersistentVolume](v.s, "")
	for _, pv := range all {
		if volumehelper.GetPersistentVolumeClass(pv) == class {
			out = append(out, pv)
		}
	}
	return out
}

func (v storage) Class(name string) (*storagev1.StorageClass, bool) {
	return found(get[*storagev1.StorageClass](v.s, "", name))
}

func (v storage) CSINode(name string) (*storagev1.CSINode, bool) {
	return found(get[*storagev1.CSINode](v.s, "", name))
}

func (v storage) CSIDriver(name string) (*storagev1.CSIDriver, bool) {
	return found(get[*storagev1.CSIDriver](v.s, "", name))
}

func (v storage) Capacities(class string) (out []*storagev1.CSIStorageCapacity) {
	all, _ := list[*storagev1.CSIStorageCapacity](v.s, "")
	for _, c := range all {
		if c.StorageClassName == class {
			out = append(out, c)
		}
	}
	return out
}

func (v storage) Attachments(node string) (out []*storagev1.VolumeAttachment) {
	all, _ := list[*storagev1.VolumeAttachment](v.s, "")
	for _, a := range all {
		if a.Spec.NodeName == node {
			out = append(out, a)
		}
	}
	return out
}

// selectors keeps compiled selectors of devices. It is safe for concurrent use.
var selectors = cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})

// devices shows the Snapshot's dynamic resources to the scheduler's plugins. Without allocations,
// all devices are free.
type devices struct {
	s           *Snapshot
	allocations bool
	selectors   *cel.Cache
}

func (d devices) Claim(namespace, name string) (claim *resourcev1.ResourceClaim, beingAllocated, ok bool) {
	claim, ok = found(get[*resourcev1.ResourceClaim](d.s, namespace, name))
	return claim, false, ok
}

func (d devices) ExtendedClaim(pod *corev1.Pod) *resourcev1.ResourceClaim {
	claims, _ := list[*resourcev1.ResourceClaim](d.s, pod.Namespace)
	return framework.ExtendedClaimOf(pod, claims)
}

func (d devices) Class(name string) (*resourcev1.DeviceClass, bool) {
	return found(get[*resourcev1.DeviceClass](d.s, "", name))
}

func (d devices) Classes() []*resourcev1.DeviceClass {
	out, _ := list[*resourcev1.DeviceClass](d.s, "")
	return out
}

func (d devices) Selectors() *cel.Cache { return d.selectors }

func (d devices) Inventory() framework.Inventory {
	slices, _ := list[*resourcev1.ResourceSlice](d.s, "")
	t := framework.NewTally()
	if d.allocations {
		claims, _ := list[*resourcev1.ResourceClaim](d.s, "")
		for _, claim := range claims {
			if claim.Status.Allocation != nil {
				t.Add(claim.Status.Allocation)
			}
		}
	}
	return framework.Inventory{Slices: slices, Allocated: t.State()}
}
