package policy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/policy"
)

// The expected warnings are those that upstream's controller manager v1.36.3 wrote into the status.
func TestTypesAreCheckedAsUpstreamDoes(t *testing.T) {
	data, err := os.ReadFile("testdata/typechecking.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Policy   admissionregistrationv1.ValidatingAdmissionPolicy
		Warnings []admissionregistrationv1.ExpressionWarning
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	c := controllertest.New(t)
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	crd := create(t, c.Client, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things.stable.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "stable.example.com", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"data": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": text, "false": {Type: "integer"}}}}}}}},
	}})
	// No controller establishes definitions in this cluster.
	crd.Status.AcceptedNames = crd.Spec.Names
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	if _, err := client.UpdateStatus(t.Context(), c.Client, crd); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the kind is served", func() string {
		lists, err := c.Client.Discovery(t.Context())
		for _, l := range lists {
			if l.GroupVersion == "stable.example.com/v1" {
				return ""
			}
		}
		return fmt.Sprint("it is not ", err)
	})
	c.Run(policy.TypeChecking)
	for _, test := range cases {
		create(t, c.Client, &test.Policy)
		c.Eventually(test.Policy.Name+" is checked", func() string {
			p, err := client.Get[*admissionregistrationv1.ValidatingAdmissionPolicy](t.Context(), c.Client, "", test.Policy.Name)
			if err != nil || p.Status.ObservedGeneration != p.Generation || p.Status.TypeChecking == nil {
				return fmt.Sprint("not yet ", err)
			}
			if !equality.Semantic.DeepEqual(p.Status.TypeChecking.ExpressionWarnings, test.Warnings) {
				got, _ := json.MarshalIndent(p.Status.TypeChecking.ExpressionWarnings, "", " ")
				return string(got)
			}
			return ""
		})
	}
}

func create[T client.Object](t *testing.T, c client.Interface, obj T) T {
	t.Helper()
	made, err := client.Create(t.Context(), c, obj)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
