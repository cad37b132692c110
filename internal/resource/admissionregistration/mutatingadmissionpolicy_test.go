package admissionregistration_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNewMutatingAdmissionPoliciesAreValidatedWithTheirMetadata(t *testing.T) {
	policy := func(kind, rest string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: " + kind + "\nspec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, " + rest + "}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"errors omit spaces around a mutation", policy("MutatingAdmissionPolicy", "failurePolicy: Fail, reinvocationPolicy: Never, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: ' 1.1.1 '}}]"), []string{`Invalid value: "1.1.1": compilation failed: ERROR: <input>:1:4`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}
