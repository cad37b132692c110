package api

import (
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
)

// schedulingKinds are the kinds of the group scheduling.k8s.io.
var schedulingKinds = []Kind{
	{
		Kind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), Resource: "priorityclasses", Singular: "priorityclass",
		Object: &schedulingv1.PriorityClass{}, ShortNames: []string{"pc"}, Served: []string{"v1"},
		Prefix: "/registry/priorityclasses",
	},
	{
		Kind: schedulingv1alpha2.SchemeGroupVersion.WithKind("Workload"), Resource: "workloads", Singular: "workload",
		Object: &schedulingv1alpha2.Workload{}, Namespaced: true, Served: []string{"v1alpha2"},
		Prefix: "/registry/workloads", Gate: "GenericWorkload",
	},
	{
		Kind: schedulingv1alpha2.SchemeGroupVersion.WithKind("PodGroup"), Resource: "podgroups", Singular: "podgroup",
		Object: &schedulingv1alpha2.PodGroup{}, Namespaced: true, Served: []string{"v1alpha2"},
		Prefix: "/registry/podgroups", Gate: "GenericWorkload",
		Subresources: []Subresource{
			{Name: "status", Kind: schedulingv1alpha2.SchemeGroupVersion.WithKind("PodGroup"), Verbs: updateVerbs},
		},
	},
}
