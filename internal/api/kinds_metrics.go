package api

import (
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// metricsKinds are the kinds of the group metrics.k8s.io, which upstream leaves to an extension
// server. They are measured on request. An APIService for the group takes precedence.
var metricsKinds = []Kind{
	{
		Kind: metricsv1beta1.SchemeGroupVersion.WithKind("NodeMetrics"), Resource: "nodes",
		Object: &metricsv1beta1.NodeMetrics{}, Served: []string{"v1beta1"},
		Virtual: true, Verbs: []string{"get", "list"},
	},
	{
		Kind: metricsv1beta1.SchemeGroupVersion.WithKind("PodMetrics"), Resource: "pods",
		Object: &metricsv1beta1.PodMetrics{}, Namespaced: true, Served: []string{"v1beta1"},
		Virtual: true, Verbs: []string{"get", "list"},
	},
}
