package api

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// appsKinds are the kinds of the group apps.
var appsKinds = []Kind{
	{
		Kind: appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), Resource: "controllerrevisions", Singular: "controllerrevision",
		Object: &appsv1.ControllerRevision{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/controllerrevisions",
	},
	{
		Kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), Resource: "daemonsets", Singular: "daemonset",
		Object: &appsv1.DaemonSet{}, Namespaced: true, ShortNames: []string{"ds"}, Categories: []string{"all"}, Served: []string{"v1"},
		Prefix: "/registry/daemonsets",
		Subresources: []Subresource{
			{Name: "status", Kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), Verbs: updateVerbs},
		},
	},
	{
		Kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Resource: "deployments", Singular: "deployment",
		Object: &appsv1.Deployment{}, Namespaced: true, ShortNames: []string{"deploy"}, Categories: []string{"all"}, Served: []string{"v1"},
		Prefix: "/registry/deployments",
		Subresources: []Subresource{
			{Name: "scale", Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Verbs: updateVerbs},
			{Name: "status", Kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Verbs: updateVerbs},
		},
	},
	{
		Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Resource: "replicasets", Singular: "replicaset",
		Object: &appsv1.ReplicaSet{}, Namespaced: true, ShortNames: []string{"rs"}, Categories: []string{"all"}, Served: []string{"v1"},
		Prefix: "/registry/replicasets",
		Subresources: []Subresource{
			{Name: "scale", Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Verbs: updateVerbs},
			{Name: "status", Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Verbs: updateVerbs},
		},
	},
	{
		Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), Resource: "statefulsets", Singular: "statefulset",
		Object: &appsv1.StatefulSet{}, Namespaced: true, ShortNames: []string{"sts"}, Categories: []string{"all"}, Served: []string{"v1"},
		Prefix: "/registry/statefulsets",
		Subresources: []Subresource{
			{Name: "scale", Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Verbs: updateVerbs},
			{Name: "status", Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), Verbs: updateVerbs},
		},
	},
}
