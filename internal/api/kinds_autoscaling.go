package api

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// autoscalingKinds are the kinds of the group autoscaling.
var autoscalingKinds = []Kind{
	{
		Kind: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), Resource: "horizontalpodautoscalers", Singular: "horizontalpodautoscaler",
		Object: &autoscalingv2.HorizontalPodAutoscaler{}, Namespaced: true, ShortNames: []string{"hpa"}, Categories: []string{"all"}, Served: []string{"v2", "v1"},
		Prefix: "/registry/horizontalpodautoscalers",
		Subresources: []Subresource{
			{Name: "status", Kind: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), Verbs: updateVerbs},
		},
	},
}
