package dra_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNewDeviceClassesAreValidated(t *testing.T) {
	class := func(spec string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nspec: " + spec + "\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a class", class(`{selectors: [{cel: {expression: 'device.driver == "d"'}}], extendedResourceName: example.com/gpu}`), nil},
		{"an empty selector", class("{selectors: [{}]}"), []string{"spec.selectors[0].cel: Required value"}},
		{"an expression with a number as result", class("{selectors: [{cel: {expression: '1'}}]}"), []string{"must evaluate to bool or the unknown type, not int"}},
		{"an expression with an unknown field", class("{selectors: [{cel: {expression: device.foo}}]}"), []string{"undefined field 'foo'"}},
		{"parameters that are not an object", class("{config: [{opaque: {driver: d.example, parameters: 3}}]}"), []string{`spec.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object`}},
		{"an extended resource without domain", class("{extendedResourceName: gpu}"), []string{`spec.extendedResourceName: Invalid value: "gpu": must be a valid extended resource name`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
