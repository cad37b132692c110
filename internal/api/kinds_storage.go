package api

import (
	storagev1 "k8s.io/api/storage/v1"
)

// storageKinds are the kinds of the group storage.k8s.io.
var storageKinds = []Kind{
	{
		Kind: storagev1.SchemeGroupVersion.WithKind("CSIDriver"), Resource: "csidrivers", Singular: "csidriver",
		Object: &storagev1.CSIDriver{}, Served: []string{"v1"},
		Prefix: "/registry/csidrivers",
	},
	{
		Kind: storagev1.SchemeGroupVersion.WithKind("CSINode"), Resource: "csinodes", Singular: "csinode",
		Object: &storagev1.CSINode{}, Served: []string{"v1"},
		Prefix: "/registry/csinodes",
	},
	{
		Kind: storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"), Resource: "csistoragecapacities", Singular: "csistoragecapacity",
		Object: &storagev1.CSIStorageCapacity{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/csistoragecapacities",
	},
	{
		Kind: storagev1.SchemeGroupVersion.WithKind("StorageClass"), Resource: "storageclasses", Singular: "storageclass",
		Object: &storagev1.StorageClass{}, ShortNames: []string{"sc"}, Served: []string{"v1"},
		Prefix: "/registry/storageclasses",
	},
	{
		Kind: storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), Resource: "volumeattachments", Singular: "volumeattachment",
		Object: &storagev1.VolumeAttachment{}, Served: []string{"v1"},
		Prefix: "/registry/volumeattachments",
		Subresources: []Subresource{
			{Name: "status", Kind: storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), Verbs: updateVerbs},
		},
	},
	{
		Kind: storagev1.SchemeGroupVersion.WithKind("VolumeAttributesClass"), Resource: "volumeattributesclasses", Singular: "volumeattributesclass",
		Object: &storagev1.VolumeAttributesClass{}, ShortNames: []string{"vac"}, Served: []string{"v1"},
		Prefix: "/registry/volumeattributesclasses",
	},
}
