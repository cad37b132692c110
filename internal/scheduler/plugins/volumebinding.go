package plugins

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/storage/ephemeral"
	volumehelper "k8s.io/component-helpers/storage/volume"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// volumeBinding checks that bound volumes are reachable from the node. For a claim that waits for
// its first consumer, the node needs a matching volume or a provisioner that can make one.
type volumeBinding struct{ plugin }

// volumesOfPod is what PreFilter found out about a pod's claims.
type volumesOfPod struct {
	storage framework.Storage
	delayed []*corev1.PersistentVolumeClaim
	// candidates are the volumes of the delayed claims' classes.
	candidates map[string]*volumeCandidates
	// reaches are the nodes of the bound volumes that do not reach all nodes.
	reaches []*volumeReach
	decided map[string]framework.VolumesFor // by node
}

func (v *volumesOfPod) On(node string) framework.VolumesFor { return v.decided[node] }

func (p volumeBinding) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	if len(pod.Claims) == 0 || snapshot.Storage == nil {
		return nil, &framework.Status{Code: framework.Skip}
	}
	storage, err := snapshot.Storage()
	if err != nil {
		return nil, framework.Fail(err)
	}
	v := &volumesOfPod{storage: storage, candidates: map[string]*volumeCandidates{}, decided: map[string]framework.VolumesFor{}}
	immediate := false
	for _, ref := range pod.Claims {
		claim, status := usableClaim(storage, pod.Pod, ref)
		if status != nil {
			return nil, status
		}
		class := volumehelper.GetPersistentVolumeClaimClass(claim)
		switch {
		case fullyBound(claim):
			volume, ok := storage.Volume(claim.Spec.VolumeName)
			if !ok {
				v.reaches = append(v.reaches, &volumeReach{gone: true})
			} else if reach := reachOf(volume); reach != nil {
				v.reaches = append(v.reaches, reach)
			}
		case claim.Spec.VolumeName == "" && waitsForConsumer(storage, class):
			v.delayed = append(v.delayed, claim)
		default:
			immediate = true
		}
	}
	if immediate {
		return nil, framework.RefuseAlways("pod has unbound immediate PersistentVolumeClaims")
	}
	for _, claim := range v.delayed {
		if class := volumehelper.GetPersistentVolumeClaimClass(claim); v.candidates[class] == nil {
			v.candidates[class] = newVolumeCandidates(storage.VolumesOf(class), v.delayed)
		}
	}
	// Small claims choose first: this saves large volumes.
	slices.SortStableFunc(v.delayed, func(a, b *corev1.PersistentVolumeClaim) int {
		return a.Spec.Resources.Requests.Storage().Cmp(*b.Spec.Resources.Requests.Storage())
	})
	state[p.Name()] = v
	return nil, nil
}

// usableClaim finds a claim of the pod. The status says why the claim is not usable yet.
func usableClaim(storage framework.Storage, pod *corev1.Pod, ref framework.VolumeClaim) (*corev1.PersistentVolumeClaim, *framework.Status) {
	claim, ok := storage.Claim(pod.Namespace, ref.Name)
	switch {
	case !ok && ref.Ephemeral:
		return nil, framework.RefuseAlways(fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", ref.Name))
	case !ok:
		return nil, framework.RefuseAlways(fmt.Sprintf("persistentvolumeclaim %q not found", ref.Name))
	case claim.Status.Phase == corev1.ClaimLost:
		return nil, framework.RefuseAlways(fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", claim.Name, claim.Spec.VolumeName))
	case claim.DeletionTimestamp != nil:
		return nil, framework.RefuseAlways(fmt.Sprintf("persistentvolumeclaim %q is being deleted", claim.Name))
	}
	if ref.Ephemeral {
		if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
			return nil, framework.RefuseAlways(err.Error())
		}
	}
	return claim, nil
}

// fullyBound reports whether claim and volume refer to each other.
func fullyBound(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && metav1.HasAnnotation(claim.ObjectMeta, volumehelper.AnnBindCompleted)
}

func waitsForConsumer(storage framework.Storage, class string) bool {
	c, ok := storage.Class(class)
	return class != "" && ok && c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

const (
	reasonNoVolume     = "node(s) didn't find available persistent volumes to bind"
	reasonNodeAffinity = "node(s) didn't match PersistentVolume's node affinity"
	reasonVolumeGone   = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	reasonNoSpace      = "node(s) did not have enough free storage"
)

func (p volumeBinding) Filter(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	v := state[p.Name()].(*volumesOfPod)
	bound := v.reachable(node.Node)
	if bound == "" && len(v.delayed) == 0 {
		return nil
	}
	found, unbound, err := v.find(node.Node)
	if err != nil {
		return framework.Fail(err)
	}
	reasons := slices.DeleteFunc([]string{bound, unbound}, func(reason string) bool { return reason == "" })
	if len(reasons) > 0 {
		return framework.RefuseAlways(reasons...)
	}
	v.decided[node.Name()] = found
	return nil
}

// reachable says why a bound volume is not usable on the node; "" means that all are.
func (v *volumesOfPod) reachable(node *corev1.Node) string {
	for _, reach := range v.reaches {
		if reach.gone {
			return reasonVolumeGone
		}
		if !reach.includes(node) {
			return reasonNodeAffinity
		}
	}
	return ""
}

// find chooses volumes for the claims that wait for a node, or says why there are none.
func (v *volumesOfPod) find(node *corev1.Node) (found framework.VolumesFor, reason string, err error) {
	taken := map[string]*corev1.PersistentVolume{}
	var unmatched []*corev1.PersistentVolumeClaim
	for _, claim := range v.delayed {
		if selected, ok := claim.Annotations[volumehelper.AnnSelectedNode]; ok {
			// A provisioner already works on it, for this node or for another one.
			if selected != node.Name {
				return found, reasonNoVolume, nil
			}
			found.Provision = append(found.Provision, claim)
			continue
		}
		class := volumehelper.GetPersistentVolumeClaimClass(claim)
		volume, err := volumehelper.FindMatchingVolume(claim, v.candidates[class].on(node), node, taken, true, true)
		if err != nil {
			return found, "", fmt.Errorf("find a volume for claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		if volume == nil {
			unmatched = append(unmatched, claim)
			continue
		}
		taken[volume.Name] = volume
		found.Static = append(found.Static, framework.ClaimedVolume{Claim: claim, Volume: volume})
	}
	found.Provision = append(found.Provision, unmatched...)
	for _, claim := range found.Provision {
		if reason, err = v.canProvision(claim, node); reason != "" || err != nil {
			return found, reason, err
		}
	}
	return found, "", nil
}

// canProvision says why no volume can be made for the claim on the node; "" means that it can.
func (v *volumesOfPod) canProvision(claim *corev1.PersistentVolumeClaim, node *corev1.Node) (reason string, err error) {
	name := volumehelper.GetPersistentVolumeClaimClass(claim)
	class, ok := v.storage.Class(name)
	if !ok {
		return "", fmt.Errorf("failed to find storage class %q", name)
	}
	if class.Provisioner == "" || class.Provisioner == volumehelper.NotSupportedProvisioner || !allowsTopology(class, node) {
		return reasonNoVolume, nil
	}
	driver, ok := v.storage.CSIDriver(class.Provisioner)
	if !ok || driver.Spec.StorageCapacity == nil || !*driver.Spec.StorageCapacity {
		return "", nil // the driver does not report capacity
	}
	size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return "", nil
	}
	for _, c := range v.storage.Capacities(name) {
		limit := cmp.Or(c.MaximumVolumeSize, c.Capacity)
		if limit != nil && limit.Cmp(size) >= 0 && hasAccess(c, node) {
			return "", nil
		}
	}
	return reasonNoSpace, nil
}

// allowsTopology reports whether the class makes volumes for the node.
func allowsTopology(class *storagev1.StorageClass, node *corev1.Node) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	var selector corev1.NodeSelector
	for _, t := range class.AllowedTopologies {
		if len(t.MatchLabelExpressions) == 0 {
			continue // an empty term matches nothing
		}
		var term corev1.NodeSelectorTerm
		for _, e := range t.MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOpIn, Values: e.Values})
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	match, err := schedulinghelper.MatchNodeSelectorTerms(node, &selector)
	return err == nil && match
}

func hasAccess(c *storagev1.CSIStorageCapacity, node *corev1.Node) bool {
	if c.NodeTopology == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
	return err == nil && selector.Matches(labels.Set(node.Labels))
}

func (volumeBinding) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeLabels | framework.NodeTaints | framework.ClaimChanged | framework.VolumeChanged |
		framework.StorageClassChanged | framework.CSINodeChanged | framework.CSIDriverChanged | framework.CapacityChanged | framework.SelfChanged
}
