package plugins

import (
	"fmt"
	"maps"
	"slices"

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
	state[p.Name()] = newWanted(storage, pod)
	return nil, nil
}

// wantedVolumes are the volumes of a pod, or the status that says why they are not known.
type wantedVolumes struct {
	storage framework.Storage
	volumes sets.Set[csiVolume]
	status  *framework.Status
}

func newWanted(storage framework.Storage, pod *framework.PodInfo) *wantedVolumes {
	w := &wantedVolumes{storage: storage, volumes: sets.New[csiVolume]()}
	for _, ref := range pod.Claims {
		claim, status := usableClaim(storage, pod.Pod, ref)
		if status != nil {
			w.status = status
			return w
		}
		if v, ok := volumeOf(storage, claim); ok {
			w.volumes.Insert(v)
		}
	}
	return w
}

// csiVolume is a volume as its driver knows it. The claim serves as handle for a volume that does
// not exist yet.
type csiVolume struct{ driver, handle string }

func (p volumeLimits) Filter(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	wanted := state[p.Name()].(*wantedVolumes)
	if len(wanted.volumes) == 0 && wanted.status == nil {
		return nil
	}
	limits := limitsOf(wanted.storage, node.Name())
	switch {
	case len(limits) == 0:
		return nil
	case wanted.status != nil:
		return wanted.status
	}
	atMost := len(wanted.volumes) + claimsOn(node) + len(wanted.storage.Attachments(node.Name()))
	if atMost <= slices.Min(slices.Collect(maps.Values(limits))) {
		return nil // even if all volumes are different and of one driver
	}
	attached := attachedTo(wanted.storage, node)
	count := map[string]int{}
	for v := range attached {
		count[v.driver]++
	}
	for v := range wanted.volumes.Difference(attached) {
		count[v.driver]++
		if limit, ok := limits[v.driver]; ok && count[v.driver] > limit {
			return framework.Refuse("node(s) exceed max volume count")
		}
	}
	return nil
}

// claimsOn returns the number of claims of the node's pods.
func claimsOn(node *framework.NodeInfo) (n int) {
	for _, p := range node.Pods {
		n += len(p.Claims)
	}
	return n
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
