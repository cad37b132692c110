package plugins

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	volumehelper "k8s.io/component-helpers/storage/volume"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// volumeLimits refuses nodes that would exceed the number of volumes that their CSINode allows for
// a driver.
type volumeLimits struct{ plugin }

func (p volumeLimits) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	if len(pod.Claims) == 0 || snapshot.Storage == nil {
		return nil, &framework.Status{Code: framework.Skip}
	}
	storage, err := snapshot.Storage()
	if err != nil {
		return nil, framework.Fail(err)
	}
	state[p.Name()] = storage
	return nil, nil
}

// csiVolume is a volume as its driver knows it. The claim serves as handle for a volume that does
// not exist yet.
type csiVolume struct{ driver, handle string }

func (p volumeLimits) Filter(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	storage := state[p.Name()].(framework.Storage)
	limits := limitsOf(storage, node.Name())
	if len(limits) == 0 {
		return nil
	}
	wanted := sets.New[csiVolume]()
	for _, ref := range pod.Claims {
		claim, status := usableClaim(storage, pod.Pod, ref)
		if status != nil {
			return status
		}
		if v, ok := volumeOf(storage, claim); ok {
			wanted.Insert(v)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	attached := attachedTo(storage, node)
	count := map[string]int{}
	for v := range attached {
		count[v.driver]++
	}
	for v := range wanted.Difference(attached) {
		count[v.driver]++
		if limit, ok := limits[v.driver]; ok && count[v.driver] > limit {
			return framework.Refuse("node(s) exceed max volume count")
		}
	}
	return nil
}

// limitsOf returns the maximum number of volumes on the node, by driver.
func limitsOf(storage framework.Storage, node string) map[string]int {
	csi, ok := storage.CSINode(node)
	if !ok {
		return nil
	}
	limits := map[string]int{}
	for _, d := range csi.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			limits[d.Name] = int(*d.Allocatable.Count)
		}
	}
	return limits
}

// attachedTo returns the volumes of the node's pods, and all others that are attached to the node.
func attachedTo(storage framework.Storage, node *framework.NodeInfo) sets.Set[csiVolume] {
	out := sets.New[csiVolume]()
	for _, other := range node.Pods {
		for _, ref := range other.Claims {
			claim, ok := storage.Claim(other.Pod.Namespace, ref.Name)
			if !ok {
				continue
			}
			if v, ok := volumeOf(storage, claim); ok {
				out.Insert(v)
			}
		}
	}
	for _, a := range storage.Attachments(node.Name()) {
		if v, ok := attachedVolume(storage, a); ok {
			out.Insert(v)
		}
	}
	return out
}

func attachedVolume(storage framework.Storage, a *storagev1.VolumeAttachment) (csiVolume, bool) {
	switch source := a.Spec.Source; {
	case source.PersistentVolumeName != nil:
		if v, ok := storage.Volume(*source.PersistentVolumeName); ok && v.Spec.CSI != nil {
			return csiVolume{v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle}, true
		}
	case source.InlineVolumeSpec != nil && source.InlineVolumeSpec.CSI != nil:
		return csiVolume{source.InlineVolumeSpec.CSI.Driver, source.InlineVolumeSpec.CSI.VolumeHandle}, true
	}
	return csiVolume{}, false
}

// volumeOf returns the CSI volume of a claim, whether it exists or will be provisioned.
func volumeOf(storage framework.Storage, claim *corev1.PersistentVolumeClaim) (csiVolume, bool) {
	if claim.Spec.VolumeName != "" {
		if v, ok := storage.Volume(claim.Spec.VolumeName); ok {
			if v.Spec.CSI == nil {
				return csiVolume{}, false
			}
			return csiVolume{v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle}, true
		}
	}
	class, ok := storage.Class(volumehelper.GetPersistentVolumeClaimClass(claim))
	if !ok {
		return csiVolume{}, false
	}
	return csiVolume{class.Provisioner, fmt.Sprintf("claim %s/%s", claim.Namespace, claim.Name)}, true
}

func (volumeLimits) RequeueOn() framework.Events {
	return framework.CSINodeChanged | framework.PodRemoved | framework.ClaimChanged | framework.AttachmentRemoved | framework.NodeAdded
}
