package api

import (
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// schedulingKinds are the kinds of the group scheduling.k8s.io.
var schedulingKinds = []Kind{
	{
		Kind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), Resource: "priorityclasses", Singular: "priorityclass",
		Object: &schedulingv1.PriorityClass{}, ShortNames: []string{"pc"}, Served: []string{"v1"},
		Prefix: "/registry/priorityclasses",
	},
}
