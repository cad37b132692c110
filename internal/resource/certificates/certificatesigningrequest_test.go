package certificates_test

import (
	"strings"
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
			if s.PrepareCreate != nil {
				s.PrepareCreate(obj)
			}
			var got []string
			for _, err := range s.ValidateCreate(obj) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}
