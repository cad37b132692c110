package api

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// coreKinds are the kinds of the core group.
var coreKinds = []Kind{
	{
		Kind: corev1.SchemeGroupVersion.WithKind("Binding"), Resource: "bindings", Singular: "binding",
		Object: &corev1.Binding{}, Namespaced: true, Served: []string{"v1"},
		Virtual: true, Verbs: []string{"create"},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("ComponentStatus"), Resource: "componentstatuses", Singular: "componentstatus",
		Object: &corev1.ComponentStatus{}, ShortNames: []string{"cs"}, Served: []string{"v1"},
		Virtual: true, Verbs: []string{"get", "list"},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps", Singular: "configmap",
		Object: &corev1.ConfigMap{}, Namespaced: true, ShortNames: []string{"cm"}, Served: []string{"v1"},
		Prefix: "/registry/configmaps",
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("Endpoints"), Resource: "endpoints", Singular: "endpoints",
		Object: &corev1.Endpoints{}, Namespaced: true, ShortNames: []string{"ep"}, Served: []string{"v1"},
		Prefix: "/registry/services/endpoints",
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("Event"), Resource: "events", Singular: "event",
		Object: &corev1.Event{}, Namespaced: true, ShortNames: []string{"ev"}, Served: []string{"v1"},
		Prefix: "/registry/events",
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("LimitRange"), Resource: "limitranges", Singular: "limitrange",
		Object: &corev1.LimitRange{}, Namespaced: true, ShortNames: []string{"limits"}, Served: []string{"v1"},
		Prefix: "/registry/limitranges",
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("Namespace"), Resource: "namespaces", Singular: "namespace",
		Object: &corev1.Namespace{}, ShortNames: []string{"ns"}, Served: []string{"v1"},
		Prefix: "/registry/namespaces", Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		Subresources: []Subresource{
			{Name: "finalize", Kind: corev1.SchemeGroupVersion.WithKind("Namespace"), Verbs: []string{"update"}},
			{Name: "status", Kind: corev1.SchemeGroupVersion.WithKind("Namespace"), Verbs: updateVerbs},
		},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("Node"), Resource: "nodes", Singular: "node",
		Object: &corev1.Node{}, ShortNames: []string{"no"}, Served: []string{"v1"},
		Prefix: "/registry/minions",
		Subresources: []Subresource{
			{Name: "proxy", Kind: corev1.SchemeGroupVersion.WithKind("NodeProxyOptions"), Verbs: proxyVerbs, Connect: true},
			{Name: "status", Kind: corev1.SchemeGroupVersion.WithKind("Node"), Verbs: updateVerbs},
		},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), Resource: "persistentvolumeclaims", Singular: "persistentvolumeclaim",
		Object: &corev1.PersistentVolumeClaim{}, Namespaced: true, ShortNames: []string{"pvc"}, Served: []string{"v1"},
		Prefix: "/registry/persistentvolumeclaims",
		Subresources: []Subresource{
			{Name: "status", Kind: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), Verbs: updateVerbs},
		},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("PersistentVolume"), Resource: "persistentvolumes", Singular: "persistentvolume",
		Object: &corev1.PersistentVolume{}, ShortNames: []string{"pv"}, Served: []string{"v1"},
		Prefix: "/registry/persistentvolumes",
		Subresources: []Subresource{
			{Name: "status", Kind: corev1.SchemeGroupVersion.WithKind("PersistentVolume"), Verbs: updateVerbs},
		},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Resource: "pods", Singular: "pod",
		Object: &corev1.Pod{}, Namespaced: true, ShortNames: []string{"po"}, Categories: []string{"all"}, Served: []string{"v1"},
		Prefix: "/registry/pods",
		Subresources: []Subresource{
			{Name: "attach", Kind: corev1.SchemeGroupVersion.WithKind("PodAttachOptions"), Verbs: []string{"create", "get"}, Connect: true},
			{Name: "binding", Kind: corev1.SchemeGroupVersion.WithKind("Binding"), Verbs: []string{"create"}},
			{Name: "ephemeralcontainers", Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Verbs: updateVerbs},
			{Name: "eviction", Kind: policyv1.SchemeGroupVersion.WithKind("Eviction"), Verbs: []string{"create"}},
			{Name: "exec", Kind: corev1.SchemeGroupVersion.WithKind("PodExecOptions"), Verbs: []string{"create", "get"}, Connect: true},
			{Name: "log", Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Verbs: []string{"get"}, Connect: true},
			{Name: "portforward", Kind: corev1.SchemeGroupVersion.WithKind("PodPortForwardOptions"), Verbs: []string{"create", "get"}, Connect: true},
			{Name: "proxy", Kind: corev1.SchemeGroupVersion.WithKind("PodProxyOptions"), Verbs: proxyVerbs, Connect: true},
			{Name: "resize", Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Verbs: updateVerbs},
			{Name: "status", Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Verbs: updateVerbs},
		},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("PodTemplate"), Resource: "podtemplates", Singular: "podtemplate",
		Object: &corev1.PodTemplate{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/podtemplates",
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("ReplicationController"), Resource: "replicationcontrollers", Singular: "replicationcontroller",
		Object: &corev1.ReplicationController{}, Namespaced: true, ShortNames: []string{"rc"}, Categories: []string{"all"}, Served: []string{"v1"},
		Prefix: "/registry/controllers",
		Subresources: []Subresource{
			{Name: "scale", Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Verbs: updateVerbs},
			{Name: "status", Kind: corev1.SchemeGroupVersion.WithKind("ReplicationController"), Verbs: updateVerbs},
		},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("ResourceQuota"), Resource: "resourcequotas", Singular: "resourcequota",
		Object: &corev1.ResourceQuota{}, Namespaced: true, ShortNames: []string{"quota"}, Served: []string{"v1"},
		Prefix: "/registry/resourcequotas",
		Subresources: []Subresource{
			{Name: "status", Kind: corev1.SchemeGroupVersion.WithKind("ResourceQuota"), Verbs: updateVerbs},
		},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("Secret"), Resource: "secrets", Singular: "secret",
		Object: &corev1.Secret{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/secrets",
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), Resource: "serviceaccounts", Singular: "serviceaccount",
		Object: &corev1.ServiceAccount{}, Namespaced: true, ShortNames: []string{"sa"}, Served: []string{"v1"},
		Prefix: "/registry/serviceaccounts",
		Subresources: []Subresource{
			{Name: "token", Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), Verbs: []string{"create"}},
		},
	},
	{
		Kind: corev1.SchemeGroupVersion.WithKind("Service"), Resource: "services", Singular: "service",
		Object: &corev1.Service{}, Namespaced: true, ShortNames: []string{"svc"}, Categories: []string{"all"}, Served: []string{"v1"},
		Prefix: "/registry/services/specs",
		Subresources: []Subresource{
			{Name: "proxy", Kind: corev1.SchemeGroupVersion.WithKind("ServiceProxyOptions"), Verbs: proxyVerbs, Connect: true},
			{Name: "status", Kind: corev1.SchemeGroupVersion.WithKind("Service"), Verbs: updateVerbs},
		},
	},
}
