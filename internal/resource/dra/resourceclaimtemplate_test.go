package dra_test

import (
	"fmt"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestUpdatesOfClaimTemplatesReportAllErrors(t *testing.T) {
	template := func(name string) string {
		return fmt.Sprintf("apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nspec: {spec: {devices: {requests: [{name: %s, exactly: {deviceClassName: c}}]}}}\n", name)
	}
	old, s := resourcetest.Read(t, rules.For, template("r"))
	obj, _ := resourcetest.Read(t, rules.For, template("'-'"))
	resourcetest.Expect(t, s.ValidateUpdate(obj, old), `spec.spec.devices.requests[0].name: Invalid value: "-"`, "field is immutable")
}

func TestNewResourceClaimTemplatesAreValidated(t *testing.T) {
	request := "{name: r, exactly: {deviceClassName: c}}"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a claim template with finalizers", "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nspec: {metadata: {finalizers: []}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}}\n", []string{"spec.metadata.finalizers: Forbidden: cannot be set"}},
		{"a template with a name for its claims", "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nspec: {metadata: {name: x}, spec: {devices: {requests: [" + request + "]}}}\n", []string{"spec.metadata.name: Forbidden: cannot be set"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
