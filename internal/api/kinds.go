package api

import (
	corev1 "k8s.io/api/core/v1"
)

// kinds is the table, one row per kind.
var kinds = []Kind{
	{
		Kind: corev1.SchemeGroupVersion.WithKind("Namespace"), Resource: "namespaces", Singular: "namespace", ShortNames: []string{"ns"},
		Served: []string{"v1"}, Prefix: "/registry/namespaces", Object: &corev1.Namespace{},
		Subresources: []Subresource{
			{Name: "status", Kind: corev1.SchemeGroupVersion.WithKind("Namespace"), Verbs: []string{"get", "patch", "update"}},
			{Name: "finalize", Kind: corev1.SchemeGroupVersion.WithKind("Namespace"), Verbs: []string{"update"}},
		},
		Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
	},
}
