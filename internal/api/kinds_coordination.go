package api

import (
	coordinationv1 "k8s.io/api/coordination/v1"
)

// coordinationKinds are the kinds of the group coordination.k8s.io.
var coordinationKinds = []Kind{
	{
		Kind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), Resource: "leases", Singular: "lease",
		Object: &coordinationv1.Lease{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/leases",
	},
}
