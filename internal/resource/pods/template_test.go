package pods_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNamesThatAreNoHostnamesAreWarnedOf(t *testing.T) {
	for _, kind := range []string{"Deployment", "ReplicaSet"} {
		obj, s := resourcetest.Read(t, rules.For, "apiVersion: apps/v1\nkind: "+kind+"\nmetadata: {name: a.b}\n")
		if w := s.Warnings(obj, nil); len(w) != 1 || !strings.Contains(w[0], "[must not contain dots]") {
			t.Errorf("%s: %v", kind, w)
		}
		if w := s.Warnings(obj, obj); len(w) > 0 {
			t.Errorf("an update of a %s: %v", kind, w)
		}
	}
}

func TestTemplateWarningsAreRepeatedWhenTheSpecChanges(t *testing.T) {
	template := "template: {metadata: {labels: {a: b}}, spec: {terminationGracePeriodSeconds: -1, containers: [{name: c, image: i}]}}"
	for manifest, repeated := range map[string]bool{
		"apiVersion: apps/v1\nkind: Deployment\nspec: {selector: {matchLabels: {a: b}}, " + template + "}\n": true,
		"apiVersion: v1\nkind: ReplicationController\nspec: {selector: {a: b}, " + template + "}\n":          true,
		"apiVersion: apps/v1\nkind: DaemonSet\nspec: {selector: {matchLabels: {a: b}}, " + template + "}\n":  false,
		"apiVersion: v1\nkind: PodTemplate\n" + template + "\n":                                              false,
	} {
		old, s := resourcetest.Read(t, rules.For, manifest)
		obj, _ := resourcetest.Read(t, rules.For, manifest)
		if got := s.Warnings(obj, old); len(got) > 0 {
			t.Errorf("%s: nothing has changed, and it says %v", manifest, got)
		}
		obj.(metav1.Object).SetGeneration(2)
		if got := s.Warnings(obj, old); (len(got) > 0) != repeated {
			t.Errorf("%s: something else has changed, and it says %v", manifest, got)
		}
	}
}

func TestNewPodTemplatesAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a padded image is valid in a template", "apiVersion: v1\nkind: PodTemplate\ntemplate: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'i '}]}}\n", nil},
		{"an unknown operating system", "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {os: {name: x}, containers: [{name: c, image: i}]}}\n", []string{`template.spec.os: Unsupported value: "x": supported values: "linux", "windows"`}},
		{"a claim that the pod lacks", "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {containers: [{name: c, image: i, resources: {claims: [{name: x}]}}]}}\n", []string{`template.spec.containers[0].resources.claims[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims which is empty`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
