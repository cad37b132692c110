package framework

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Storage is the cluster's volumes as decisions see them. Decisions for other pods that are not
// written yet count as if they were (assumed). Objects are shared and read-only.
type Storage interface {
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool)
	Volume(name string) (*corev1.PersistentVolume, bool)
	// VolumesOf returns the volumes of a class.
	VolumesOf(class string) []*corev1.PersistentVolume
	Class(name string) (*storagev1.StorageClass, bool)
	CSINode(name string) (*storagev1.CSINode, bool)
	CSIDriver(name string) (*storagev1.CSIDriver, bool)
	// Capacities returns the available capacities for volumes of a class.
	Capacities(class string) []*storagev1.CSIStorageCapacity
	// Attachments returns the volumes that are attached to a node, or will be.
	Attachments(node string) []*storagev1.VolumeAttachment
}

// VolumesFor are the volumes that VolumeBinding found for a pod on one node. It binds them if the
// pod goes there.
type VolumesFor struct {
	// Static pairs claims with volumes that exist.
	Static []ClaimedVolume
	// Provision are the claims for which the class's provisioner will make a volume.
	Provision []*corev1.PersistentVolumeClaim
}

// ClaimedVolume is a volume that was found for a claim.
type ClaimedVolume struct {
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
}

// VolumeBinding is the name of the plugin that binds volumes. Its entry in State is a
// VolumeDecisions.
const VolumeBinding = "VolumeBinding"

// VolumeDecisions returns the volumes that VolumeBinding found on a node.
type VolumeDecisions interface {
	On(node string) VolumesFor
}
