package api

import (
	nodev1 "k8s.io/api/node/v1"
)

// nodeKinds are the kinds of the group node.k8s.io.
var nodeKinds = []Kind{
	{
		Kind: nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), Resource: "runtimeclasses", Singular: "runtimeclass",
		Object: &nodev1.RuntimeClass{}, Served: []string{"v1"},
		Prefix: "/registry/runtimeclasses",
	},
}
