package framework

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Storage is the cluster's volumes as decisions see them: what was decided for other pods and is not written yet is in it
// (assumed). Objects are shared and read-only.
type Storage interface {
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool)
	Volume(name string) (*corev1.PersistentVolume, bool)
	// VolumesOf are the volumes of a class.
	VolumesOf(class string) []*corev1.PersistentVolume
	Class(name string) (*storagev1.StorageClass, bool)
	CSINode(name string) (*storagev1.CSINode, bool)
	CSIDriver(name string) (*storagev1.CSIDriver, bool)
	// Capacities tell how much room there is for volumes of a class.
	Capacities(class string) []*storagev1.CSIStorageCapacity
	// Attachments are the volumes that are attached to a node, or about to be.
	Attachments(node string) []*storagev1.VolumeAttachment
}

// VolumesFor are the volumes that a pod needs on the node it gets: what VolumeBinding found, and binds once the pod is to go there.
type VolumesFor struct {
	// Static pairs claims with volumes that exist.
	Static []ClaimedVolume
	// Provision are claims whose class's provisioner is to make a volume for the node.
	Provision []*corev1.PersistentVolumeClaim
}

// ClaimedVolume is a volume that was found for a claim.
type ClaimedVolume struct {
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
}

// VolumeBinding is the name of the plugin that binds volumes; its State is a VolumeDecisions.
const VolumeBinding = "VolumeBinding"

// VolumeDecisions holds, by node, what VolumeBinding found there.
type VolumeDecisions interface {
	On(node string) VolumesFor
}
