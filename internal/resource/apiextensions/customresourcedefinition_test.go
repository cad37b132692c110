package apiextensions_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestADefinitionWithoutANameHasOneError(t *testing.T) {
	obj, s := resourcetest.Read(t, rules.For, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {group: a.example, scope: Cluster, names: {plural: as, singular: a, kind: A, listKind: AList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n")
	obj.(metav1.Object).SetName("")
	resourcetest.Expect(t, s.ValidateNew(obj, false), "metadata.name: Required value: name or generateName is required")
}

// The first states of a definition are read by `kubectl wait`, which needs a list.
func TestANewDefinitionHasAListOfConditions(t *testing.T) {
	obj, s := resourcetest.Read(t, rules.For, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: as.a.example}\nspec: {group: a.example, scope: Cluster, names: {plural: as, singular: a, kind: A, listKind: AList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n")
	s.PrepareCreate(obj)
	text, err := json.Marshal(obj)
	if err != nil || !strings.Contains(string(text), `"conditions":[]`) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestUnknownFormatsAreWarnedOf(t *testing.T) {
	obj, s := resourcetest.Read(t, rules.For, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: a.example
  scope: Cluster
  names: {plural: as, singular: a, kind: A, listKind: AList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {z: {type: string, format: z, not: {format: b}}, y: {type: string, anyOf: [{format: d}], allOf: [{format: c}, {not: {format: a}}], oneOf: [{format: e}]}}}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {y: {type: string, format: a2}, z: {type: string, format: z}}}}}
`)
	var want []string
	for _, f := range []string{"a", "b", "c", "d", "e", "z", "a2"} {
		want = append(want, `unrecognized format "`+f+`"`)
	}
	if got := s.Warnings(obj, nil); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
