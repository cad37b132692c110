package plugins

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// volumeRestrictions refuses a second mount of a disk that can be mounted once on a node. It also
// refuses a second pod for a claim with ReadWriteOncePod (KEP-2485), on all nodes.
type volumeRestrictions struct{ plugin }

// restricted is the result of PreFilter: another pod uses one of the pod's ReadWriteOncePod claims.
type restricted struct{ inUse bool }

func (p volumeRestrictions) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	disks := slices.ContainsFunc(pod.Pod.Spec.Volumes, isDisk)
	if len(pod.Claims) == 0 && !disks {
		return nil, &framework.Status{Code: framework.Skip}
	}
	exclusive, status := exclusiveClaims(pod, snapshot)
	if status != nil {
		return nil, status
	}
	if len(exclusive) == 0 && !disks {
		return nil, &framework.Status{Code: framework.Skip}
	}
	r := restricted{}
	for _, node := range snapshot.Nodes.All() {
		if r.inUse || len(exclusive) == 0 {
			break
		}
		r.inUse = slices.ContainsFunc(node.Pods, func(o *framework.PodInfo) bool {
			return slices.ContainsFunc(exclusive, func(claim string) bool { return o.UsesClaim(pod.Pod.Namespace, claim) })
		})
	}
	state[p.Name()] = r
	return nil, nil
}

// exclusiveClaims returns the pod's ReadWriteOncePod claims.
func exclusiveClaims(pod *framework.PodInfo, snapshot *framework.Snapshot) ([]string, *framework.Status) {
	if len(pod.Claims) == 0 || snapshot.Storage == nil {
		return nil, nil
	}
	storage, err := snapshot.Storage()
	if err != nil {
		return nil, framework.Fail(err)
	}
	var out []string
	for _, ref := range pod.Claims {
		if ref.Ephemeral {
			continue // it belongs to one pod anyway
		}
		claim, ok := storage.Claim(pod.Pod.Namespace, ref.Name)
		if !ok {
			return nil, framework.RefuseAlways(fmt.Sprintf("persistentvolumeclaim %q not found", ref.Name))
		}
		if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			out = append(out, ref.Name)
		}
	}
	return out, nil
}

func (p volumeRestrictions) Filter(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	for i := range pod.Pod.Spec.Volumes {
		v := &pod.Pod.Spec.Volumes[i]
		if !isDisk(*v) {
			continue
		}
		for _, other := range node.Pods {
			if slices.ContainsFunc(other.Pod.Spec.Volumes, func(o corev1.Volume) bool { return sameDisk(v, &o) }) {
				return framework.Refuse("node(s) had no available disk")
			}
		}
	}
	if state[p.Name()].(restricted).inUse {
		return framework.Refuse("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")
	}
	return nil
}

func isDisk(v corev1.Volume) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.RBD != nil || v.ISCSI != nil
}

// sameDisk reports whether both volumes are the same disk and cannot be mounted together. Most
// disks can if both mounts are read-only.
func sameDisk(a, b *corev1.Volume) bool {
	switch {
	case a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil:
		x, y := a.GCEPersistentDisk, b.GCEPersistentDisk
		return x.PDName == y.PDName && !(x.ReadOnly && y.ReadOnly)
	case a.AWSElasticBlockStore != nil && b.AWSElasticBlockStore != nil:
		return a.AWSElasticBlockStore.VolumeID == b.AWSElasticBlockStore.VolumeID
	case a.ISCSI != nil && b.ISCSI != nil:
		x, y := a.ISCSI, b.ISCSI
		return x.IQN == y.IQN && !(x.ReadOnly && y.ReadOnly)
	case a.RBD != nil && b.RBD != nil:
		x, y := a.RBD, b.RBD
		overlap := slices.ContainsFunc(x.CephMonitors, func(m string) bool { return slices.Contains(y.CephMonitors, m) })
		return overlap && x.RBDPool == y.RBDPool && x.RBDImage == y.RBDImage && !(x.ReadOnly && y.ReadOnly)
	}
	return false
}

func (volumeRestrictions) RequeueOn() framework.Events {
	return framework.PodRemoved | framework.NodeAdded | framework.ClaimChanged
}
