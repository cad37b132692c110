package api

import (
	resourcev1 "k8s.io/api/resource/v1"
)

// resourceKinds are the kinds of the group resource.k8s.io.
var resourceKinds = []Kind{
	{
		Kind: resourcev1.SchemeGroupVersion.WithKind("DeviceClass"), Resource: "deviceclasses", Singular: "deviceclass",
		Object: &resourcev1.DeviceClass{}, Served: []string{"v1"},
		Prefix: "/registry/deviceclasses",
	},
	{
		Kind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), Resource: "resourceclaims", Singular: "resourceclaim",
		Object: &resourcev1.ResourceClaim{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/resourceclaims",
		Subresources: []Subresource{
			{Name: "status", Kind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), Verbs: updateVerbs},
		},
	},
	{
		Kind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"), Resource: "resourceclaimtemplates", Singular: "resourceclaimtemplate",
		Object: &resourcev1.ResourceClaimTemplate{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/resourceclaimtemplates",
	},
	{
		Kind: resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"), Resource: "resourceslices", Singular: "resourceslice",
		Object: &resourcev1.ResourceSlice{}, Served: []string{"v1"},
		Prefix: "/registry/resourceslices",
	},
}
