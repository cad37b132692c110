package api

import (
	authenticationv1 "k8s.io/api/authentication/v1"
)

// authenticationKinds are the kinds of the group authentication.k8s.io.
var authenticationKinds = []Kind{
	{
		Kind: authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), Resource: "selfsubjectreviews", Singular: "selfsubjectreview",
		Object: &authenticationv1.SelfSubjectReview{}, Served: []string{"v1"},
		Virtual: true, Verbs: []string{"create"},
	},
	{
		Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), Resource: "tokenreviews", Singular: "tokenreview",
		Object: &authenticationv1.TokenReview{}, Served: []string{"v1"},
		Virtual: true, Verbs: []string{"create"},
	},
}
