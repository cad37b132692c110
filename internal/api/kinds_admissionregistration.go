package api

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// admissionregistrationKinds are the kinds of the group admissionregistration.k8s.io.
var admissionregistrationKinds = []Kind{
	{
		Kind: admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), Resource: "mutatingadmissionpolicies", Singular: "mutatingadmissionpolicy",
		Object: &admissionregistrationv1.MutatingAdmissionPolicy{}, Categories: []string{"api-extensions"}, Served: []string{"v1"},
		Prefix: "/registry/mutatingadmissionpolicies", StorageVersion: "v1beta1",
	},
	{
		Kind: admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"), Resource: "mutatingadmissionpolicybindings", Singular: "mutatingadmissionpolicybinding",
		Object: &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, Categories: []string{"api-extensions"}, Served: []string{"v1"},
		Prefix: "/registry/mutatingadmissionpolicybindings", StorageVersion: "v1beta1",
	},
	{
		Kind: admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), Resource: "mutatingwebhookconfigurations", Singular: "mutatingwebhookconfiguration",
		Object: &admissionregistrationv1.MutatingWebhookConfiguration{}, Categories: []string{"api-extensions"}, Served: []string{"v1"},
		Prefix: "/registry/mutatingwebhookconfigurations",
	},
	{
		Kind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), Resource: "validatingadmissionpolicies", Singular: "validatingadmissionpolicy",
		Object: &admissionregistrationv1.ValidatingAdmissionPolicy{}, Categories: []string{"api-extensions"}, Served: []string{"v1"},
		Prefix: "/registry/validatingadmissionpolicies",
		Subresources: []Subresource{
			{Name: "status", Kind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), Verbs: updateVerbs},
		},
	},
	{
		Kind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"), Resource: "validatingadmissionpolicybindings", Singular: "validatingadmissionpolicybinding",
		Object: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, Categories: []string{"api-extensions"}, Served: []string{"v1"},
		Prefix: "/registry/validatingadmissionpolicybindings",
	},
	{
		Kind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"), Resource: "validatingwebhookconfigurations", Singular: "validatingwebhookconfiguration",
		Object: &admissionregistrationv1.ValidatingWebhookConfiguration{}, Categories: []string{"api-extensions"}, Served: []string{"v1"},
		Prefix: "/registry/validatingwebhookconfigurations",
	},
}
