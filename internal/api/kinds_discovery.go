package api

import (
	discoveryv1 "k8s.io/api/discovery/v1"
)

// discoveryKinds are the kinds of the group discovery.k8s.io.
var discoveryKinds = []Kind{
	{
		Kind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), Resource: "endpointslices", Singular: "endpointslice",
		Object: &discoveryv1.EndpointSlice{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/endpointslices",
	},
}
