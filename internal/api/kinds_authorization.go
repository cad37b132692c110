package api

import (
	authorizationv1 "k8s.io/api/authorization/v1"
)

// authorizationKinds are the kinds of the group authorization.k8s.io.
var authorizationKinds = []Kind{
	{
		Kind: authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview"), Resource: "localsubjectaccessreviews", Singular: "localsubjectaccessreview",
		Object: &authorizationv1.LocalSubjectAccessReview{}, Namespaced: true, Served: []string{"v1"},
		Virtual: true, Verbs: []string{"create"},
	},
	{
		Kind: authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), Resource: "selfsubjectaccessreviews", Singular: "selfsubjectaccessreview",
		Object: &authorizationv1.SelfSubjectAccessReview{}, Served: []string{"v1"},
		Virtual: true, Verbs: []string{"create"},
	},
	{
		Kind: authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview"), Resource: "selfsubjectrulesreviews", Singular: "selfsubjectrulesreview",
		Object: &authorizationv1.SelfSubjectRulesReview{}, Served: []string{"v1"},
		Virtual: true, Verbs: []string{"create"},
	},
	{
		Kind: authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), Resource: "subjectaccessreviews", Singular: "subjectaccessreview",
		Object: &authorizationv1.SubjectAccessReview{}, Served: []string{"v1"},
		Virtual: true, Verbs: []string{"create"},
	},
}
