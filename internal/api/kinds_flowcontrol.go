package api

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// flowcontrolKinds are the kinds of the group flowcontrol.apiserver.k8s.io.
var flowcontrolKinds = []Kind{
	{
		Kind: flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"), Resource: "flowschemas", Singular: "flowschema",
		Object: &flowcontrolv1.FlowSchema{}, Served: []string{"v1"},
		Prefix: "/registry/flowschemas",
		Subresources: []Subresource{
			{Name: "status", Kind: flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"), Verbs: updateVerbs},
		},
	},
	{
		Kind: flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"), Resource: "prioritylevelconfigurations", Singular: "prioritylevelconfiguration",
		Object: &flowcontrolv1.PriorityLevelConfiguration{}, Served: []string{"v1"},
		Prefix: "/registry/prioritylevelconfigurations",
		Subresources: []Subresource{
			{Name: "status", Kind: flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"), Verbs: updateVerbs},
		},
	},
}
