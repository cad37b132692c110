package apiregistration_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func selfLink(obj runtime.Object) string {
	return obj.(interface{ GetSelfLink() string }).GetSelfLink()
}

func TestStatusUpdatesOfAPIServicesKeepTheSentSelfLink(t *testing.T) {
	const service = "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.a.example, labels: {a: b}"
	old, s := resourcetest.Read(t, rules.For, service+"}\n")
	obj, _ := resourcetest.Read(t, rules.For, service+", selfLink: /me}\n")
	s.PrepareStatus(obj, old)
	if got := selfLink(obj); got != "/me" {
		t.Errorf("the link is %q", got)
	}
}

func TestNewAPIServicesAreValidatedWithTheirMetadata(t *testing.T) {
	service := func(meta string) string {
		return "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.a.example" + meta + "}\nspec: {group: a.example, version: v1, groupPriorityMinimum: 1, versionPriority: 1, service: {name: s, namespace: default}}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an API service with generateName", service(", generateName: a..b"), []string{"metadata.generateName: Invalid value: \"a..b\": must be `spec.version+\".\"+spec.group`: \"v1.a.example\""}},
		{"an API service with its full name as generateName", service(", generateName: v1.a.example"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}
