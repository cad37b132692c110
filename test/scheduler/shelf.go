package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shelf shows a case's volumes to knarr's plugins.
type shelf struct{ c *Case }

func find[T metav1.Object](objects []T, namespace, name string) (T, bool) {
	for _, o := range objects {
		if o.GetNamespace() == namespace && o.GetName() == name {
			return o, true
		}
	}
	var none T
	return none, false
}

// Claim implements framework.Storage.
func (s *shelf) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	return find(s.c.Claims, namespace, name)
}

// Volume implements framework.Storage.
func (s *shelf) Volume(name string) (*corev1.PersistentVolume, bool) {
	return find(s.c.Volumes, "", name)
}

// VolumesOf implements framework.Storage.
func (s *shelf) VolumesOf(class string) (out []*corev1.PersistentVolume) {
	for _, v := range s.c.Volumes {
		if v.Spec.StorageClassName == class {
			out = append(out, v)
		}
	}
	return out
}

// Class implements framework.Storage.
func (s *shelf) Class(name string) (*storagev1.StorageClass, bool) {
	return find(s.c.Classes, "", name)
}

// CSINode implements framework.Storage.
func (s *shelf) CSINode(name string) (*storagev1.CSINode, bool) { return find(s.c.CSINodes, "", name) }

// CSIDriver implements framework.Storage.
func (s *shelf) CSIDriver(name string) (*storagev1.CSIDriver, bool) {
	return find(s.c.CSIDrivers, "", name)
}

// Capacities implements framework.Storage.
func (s *shelf) Capacities(class string) (out []*storagev1.CSIStorageCapacity) {
	for _, c := range s.c.Capacities {
		if c.StorageClassName == class {
			out = append(out, c)
		}
	}
	return out
}

// Attachments implements framework.Storage.
func (s *shelf) Attachments(node string) (out []*storagev1.VolumeAttachment) {
	for _, a := range s.c.Attachments {
		if a.Spec.NodeName == node {
			out = append(out, a)
		}
	}
	return out
}
