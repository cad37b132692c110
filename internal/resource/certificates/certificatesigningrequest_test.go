package certificates_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfNewCertificateSigningRequestsComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an invalid certificate request", "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nspec: {request: eA==, signerName: me, usages: [any]}\n",
			[]string{"spec.request: Invalid value: \"eA==\": PEM block type must be CERTIFICATE REQUEST",
				`spec.signerName: Invalid value: "me": must be a fully qualified domain and path of the form 'example.com/signer-name'`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}
