package api

import (
	policyv1 "k8s.io/api/policy/v1"
)

// policyKinds are the kinds of the group policy.
var policyKinds = []Kind{
	{
		Kind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), Resource: "poddisruptionbudgets", Singular: "poddisruptionbudget",
		Object: &policyv1.PodDisruptionBudget{}, Namespaced: true, ShortNames: []string{"pdb"}, Served: []string{"v1"},
		Prefix: "/registry/poddisruptionbudgets",
		Subresources: []Subresource{
			{Name: "status", Kind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), Verbs: updateVerbs},
		},
	},
}
