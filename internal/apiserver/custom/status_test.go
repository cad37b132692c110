package custom

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnInvalidCABundlePreventsEstablishment(t *testing.T) {
	const short = `-----BEGIN CERTIFICATE-----
MIIBOzCB4qADAgECAhRw
-----END CERTIFICATE-----`
	for name, tt := range map[string]struct {
		bundle      string
		established bool // before
		reason      string
	}{
		"no bundle":                          {"", false, "InitialNamesAccepted"},
		"no certificate":                     {"Cg", false, "InvalidCABundle"},
		"only blanks":                        {"   ", false, "InvalidCABundle"},
		"a truncated certificate":            {short, false, "InvalidCABundle"},
		"an established definition stays so": {"Cg", true, "InitialNamesAccepted"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &crd{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "deps", Kind: "Dep"},
				Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
					ClientConfig: &apiextensionsv1.WebhookClientConfig{},
				}},
			}}
			if tt.established {
				Reconcile(c, nil, metav1.Time{})
			}
			c.Spec.Conversion.Webhook.ClientConfig.CABundle = []byte(tt.bundle)
			Reconcile(c, nil, metav1.Time{})
			got := apihelpers.FindCRDCondition(c, apiextensionsv1.Established)
			if got == nil || got.Reason != tt.reason || (got.Status == apiextensionsv1.ConditionTrue) != (tt.reason == "InitialNamesAccepted") {
				t.Errorf("%+v", got)
			}
			c.Spec.Conversion.Webhook.ClientConfig.CABundle = nil
			Reconcile(c, nil, metav1.Time{})
			if !Established(c) {
				t.Error("not established after the bundle was corrected")
			}
		})
	}
}
