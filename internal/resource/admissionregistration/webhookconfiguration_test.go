package admissionregistration_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNewValidatingWebhookConfigurationsAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a webhook's name with two errors", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nwebhooks: [{name: a.b._, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {url: 'https://a/b'}}]\n", []string{`webhooks[0].name: Invalid value: "a.b._": a lowercase`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
