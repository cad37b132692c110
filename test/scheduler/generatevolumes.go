package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	volumehelper "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

const driver = "csi.example.com"

// storage fills the case with classes, volumes and claims.
func (g *generator) storage(c *Case) {
	for _, name := range []string{"now", "later", "local"} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
		switch name {
		case "now":
			class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		case "local":
			class.Provisioner = volumehelper.NotSupportedProvisioner
		}
		if g.oneIn(4) {
			for range 1 + g.IntN(2) {
				class.AllowedTopologies = append(class.AllowedTopologies, corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: []string{pick(g, zones...)}}}})
			}
		}
		c.Classes = append(c.Classes, class)
	}
	for i := range g.IntN(6) {
		c.Volumes = append(c.Volumes, g.volume(fmt.Sprintf("v%d", i)))
	}
	for i := range 1 + g.IntN(6) {
		g.claim(c, fmt.Sprintf("claim%d", i), "a")
	}
	for i := range g.IntN(3) {
		g.claim(c, fmt.Sprintf("claim%d", i), "b")
	}
	g.claim(c, "p-scratch", "a")
	if g.oneIn(2) {
		c.Claims[len(c.Claims)-1].OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p", Controller: ptr.To(true)}}
	}
	if g.oneIn(2) {
		c.CSIDrivers = append(c.CSIDrivers, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(!g.oneIn(3))}})
	}
	g.capacities(c)
	if g.on[volumeCounts] {
		g.limits(c)
	}
}

func (g *generator) capacities(c *Case) {
	for i := range g.IntN(4) {
		capacity := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprintf("capacity%d", i)}, StorageClassName: pick(g, "later", "now")}
		switch g.IntN(4) {
		case 0: // none is known
		case 1:
			capacity.MaximumVolumeSize = ptr.To(g.size())
			fallthrough
		default:
			capacity.Capacity = ptr.To(g.size())
		}
		switch g.IntN(4) {
		case 0: // unreachable
		case 1:
			capacity.NodeTopology = &metav1.LabelSelector{}
		default:
			capacity.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelTopologyZone: pick(g, zones...)}}
		}
		c.Capacities = append(c.Capacities, capacity)
	}
}

// limits makes CSINodes with small numbers of volumes, and attachments of volumes that the pod does
// not use: upstream counts an attached volume again if a new pod uses it.
func (g *generator) limits(c *Case) {
	for _, name := range g.nodes {
		if g.oneIn(4) {
			continue
		}
		node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		d := storagev1.CSINodeDriver{Name: driver, NodeID: name}
		if !g.oneIn(5) {
			d.Allocatable = &storagev1.VolumeNodeResources{}
			if !g.oneIn(5) {
				d.Allocatable.Count = ptr.To(pick(g, int32(0), 1, 2, 3))
			}
		}
		node.Spec.Drivers = append(node.Spec.Drivers, d)
		c.CSINodes = append(c.CSINodes, node)
	}
	for i := range g.IntN(3) {
		if len(c.Volumes) > 0 && len(g.nodes) > 0 && c.Volumes[0].Spec.ClaimRef == nil {
			c.Attachments = append(c.Attachments, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("attachment%d", i)}, Spec: storagev1.VolumeAttachmentSpec{
				Attacher: driver, NodeName: pick(g, g.nodes...), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(c.Volumes[0].Name)},
			}})
		}
	}
}

func (g *generator) size() resource.Quantity {
	return resource.MustParse(pick(g, "1Gi", "2Gi", "5Gi", "10Gi"))
}

func (g *generator) volume(name string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	v.Spec = corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: g.size()}, AccessModes: []corev1.PersistentVolumeAccessMode{pick(g, corev1.ReadWriteOnce, corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod)},
		StorageClassName: pick(g, "local", "local", "later", "now", ""), VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem), PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
	}
	v.Status.Phase = corev1.VolumeAvailable
	if g.oneIn(8) {
		v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	}
	switch g.IntN(4) {
	case 0:
		v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
	default:
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
	}
	if g.oneIn(3) {
		v.Labels[pick(g, corev1.LabelTopologyZone, corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyRegion)] = pick(g, "za", "zb", "za__zb", "r1")
	}
	if g.oneIn(3) {
		v.Labels["kind"] = pick(g, "fast", "slow")
	}
	if g.oneIn(2) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: pick(g, corev1.LabelTopologyZone, corev1.LabelHostname), Operator: corev1.NodeSelectorOpIn, Values: []string{pick(g, zones...), pick(g, "n0", "n1", "n2")}}},
		}}}}
	}
	if g.oneIn(12) {
		g.deleteVolume(v)
	}
	return v
}

func (g *generator) deleteVolume(v *corev1.PersistentVolume) {
	v.DeletionTimestamp = ptr.To(metav1.NewTime(epoch))
}

// claim adds a claim, and its volume if it is bound.
func (g *generator) claim(c *Case, name, namespace string) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name), Annotations: map[string]string{}}}
	claim.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{pick(g, corev1.ReadWriteOnce, corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod)}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: g.size()}},
	}
	claim.Spec.StorageClassName = ptr.To(pick(g, "local", "later"))
	claim.Status.Phase = corev1.ClaimPending
	c.Claims = append(c.Claims, claim)
	if g.oneIn(15) {
		claim.DeletionTimestamp = ptr.To(metav1.NewTime(epoch))
	}
	if !g.on[delayedVolumes] || g.on[volumes] && g.oneIn(2) {
		g.bind(c, claim)
		return
	}
	switch g.IntN(8) {
	case 0:
		claim.Spec.StorageClassName = ptr.To("now")
	case 1:
		claim.Spec.StorageClassName = ptr.To(pick(g, "", "missing"))
	case 2:
		if len(g.nodes) > 0 {
			claim.Annotations[volumehelper.AnnSelectedNode] = pick(g, g.nodes...)
		}
	case 3:
		claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": pick(g, "fast", "slow")}}
	}
}

// bind binds the claim to a new volume. Some bindings are unfinished or broken.
func (g *generator) bind(c *Case, claim *corev1.PersistentVolumeClaim) {
	v := g.volume("of-" + claim.Namespace + "-" + claim.Name)
	v.DeletionTimestamp = nil
	v.Spec.StorageClassName = *claim.Spec.StorageClassName
	v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	v.Status.Phase = corev1.VolumeBound
	claim.Spec.VolumeName = v.Name
	claim.Status.Phase = corev1.ClaimBound
	claim.Annotations[volumehelper.AnnBindCompleted] = "yes"
	switch g.IntN(16) {
	case 0: // the volume is gone
		claim.Status.Phase = pick(g, corev1.ClaimLost, corev1.ClaimBound)
		return
	case 1: // the binding is unfinished on the claim's side
		delete(claim.Annotations, volumehelper.AnnBindCompleted)
		claim.Status.Phase = corev1.ClaimPending
	case 2: // the volume knows of the claim, the claim not of the volume
		delete(claim.Annotations, volumehelper.AnnBindCompleted)
		claim.Spec.VolumeName, claim.Status.Phase = "", corev1.ClaimPending
	}
	c.Volumes = append(c.Volumes, v)
}

// mount gives the pod volumes.
func (g *generator) mount(c *Case, p *corev1.Pod) {
	if len(c.Claims) > 0 && !g.oneIn(3) {
		for i := range 1 + g.IntN(2) {
			name := pick(g, "claim0", "claim0", "claim1", "claim2", "claim3", "claim4", "claim5")
			if g.on[priorities] && p.Namespace != "a" {
				name = "other" // upstream mixes up claims of victims in other namespaces
			}
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("claim%d", i), VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
		if g.oneIn(6) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}})
		}
	}
	if g.on[disks] && g.oneIn(2) {
		v := corev1.Volume{Name: "disk"}
		readOnly := g.oneIn(2)
		switch g.IntN(4) {
		case 0:
			v.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{PDName: pick(g, "d0", "d1"), ReadOnly: readOnly}
		case 1:
			v.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: pick(g, "d0", "d1"), ReadOnly: readOnly}
		case 2:
			v.ISCSI = &corev1.ISCSIVolumeSource{IQN: pick(g, "d0", "d1"), TargetPortal: pick(g, "t0", "t1"), ReadOnly: readOnly}
		default:
			v.RBD = &corev1.RBDVolumeSource{CephMonitors: []string{pick(g, "m0", "m1"), "m2"}, RBDImage: pick(g, "d0", "d1"), RBDPool: "rbd", ReadOnly: readOnly}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
}
