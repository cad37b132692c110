package api

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// apiextensionsKinds are the kinds of the group apiextensions.k8s.io.
var apiextensionsKinds = []Kind{
	{
		Kind: apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), Resource: "customresourcedefinitions", Singular: "customresourcedefinition",
		Object: &apiextensionsv1.CustomResourceDefinition{}, ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"}, Served: []string{"v1"},
		Prefix: "/registry/apiextensions.k8s.io/customresourcedefinitions", StorageVersion: "v1beta1",
		Subresources: []Subresource{
			{Name: "status", Kind: apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), Verbs: updateVerbs},
		},
	},
}
