package api

import (
	certificatesv1 "k8s.io/api/certificates/v1"
)

// certificatesKinds are the kinds of the group certificates.k8s.io.
var certificatesKinds = []Kind{
	{
		Kind: certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), Resource: "certificatesigningrequests", Singular: "certificatesigningrequest",
		Object: &certificatesv1.CertificateSigningRequest{}, ShortNames: []string{"csr"}, Served: []string{"v1"},
		Prefix: "/registry/certificatesigningrequests",
		Subresources: []Subresource{
			{Name: "approval", Kind: certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), Verbs: updateVerbs},
			{Name: "status", Kind: certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), Verbs: updateVerbs},
		},
	},
}
