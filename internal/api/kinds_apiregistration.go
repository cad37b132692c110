package api

import (
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// apiregistrationKinds are the kinds of the group apiregistration.k8s.io.
var apiregistrationKinds = []Kind{
	{
		Kind: apiregistrationv1.SchemeGroupVersion.WithKind("APIService"), Resource: "apiservices", Singular: "apiservice",
		Object: &apiregistrationv1.APIService{}, Categories: []string{"api-extensions"}, Served: []string{"v1"},
		Prefix: "/registry/apiregistration.k8s.io/apiservices",
		Subresources: []Subresource{
			{Name: "status", Kind: apiregistrationv1.SchemeGroupVersion.WithKind("APIService"), Verbs: updateVerbs},
		},
	},
}
