package resource

import (
	"testing"
)

func TestDevicesAreValidated(t *testing.T) {
	class := func(spec string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nspec: " + spec + "\n"
	}
	claim := func(devices string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: {devices: " + devices + "}\n"
	}
	slice := func(rest string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec: {driver: d.example, pool: {name: p, resourceSliceCount: 1}" + rest + "}\n"
	}
	request := "{name: r, exactly: {deviceClassName: c}}"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a class", class(`{selectors: [{cel: {expression: 'device.driver == "d"'}}], extendedResourceName: example.com/gpu}`), nil},
		{"a selector of nothing", class("{selectors: [{}]}"), []string{"spec.selectors[0].cel: Required value"}},
		{"an expression that says a number", class("{selectors: [{cel: {expression: '1'}}]}"), []string{"must evaluate to bool or the unknown type, not int"}},
		{"an expression about what devices don't have", class("{selectors: [{cel: {expression: device.foo}}]}"), []string{"undefined field 'foo'"}},
		{"parameters that are no object", class("{config: [{opaque: {driver: d.example, parameters: 3}}]}"), []string{`spec.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object`}},
		{"a resource of no domain", class("{extendedResourceName: gpu}"), []string{`spec.extendedResourceName: Invalid value: "gpu": must be a valid extended resource name`}},
		{"a claim", claim("{requests: [" + request + "], constraints: [{requests: [r], matchAttribute: d.example/numa}]}"), nil},
		{"a request for nothing", claim("{requests: [{name: r}]}"), []string{"spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"}},
		{"all, and two of them", claim("{requests: [{name: r, exactly: {deviceClassName: c, allocationMode: All, count: 2}}]}"), []string{"spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"}},
		{"the same name twice", claim("{requests: [" + request + ", " + request + "]}"), []string{`spec.devices.requests[1]: Duplicate value: "r"`}},
		{"a constraint of a request that is not there", claim("{requests: [" + request + "], constraints: [{requests: [x], matchAttribute: a/b}]}"), []string{"spec.devices.constraints[0].requests[0]: Invalid value: \"x\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"}},
		{"a subrequest in a configuration", claim("{requests: [{name: r, firstAvailable: [{name: s, deviceClassName: c}]}], config: [{requests: [r/s], opaque: {driver: d.example, parameters: {a: b}}}]}"), nil},
		{"a template with a name for its claims", "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nspec: {metadata: {name: x}, spec: {devices: {requests: [" + request + "]}}}\n", []string{"spec.metadata.name: Forbidden: cannot be set"}},
		{"a slice of a node", slice(", nodeName: node-1, devices: [{name: d, attributes: {numa: {int: 1}}}]"), nil},
		{"a slice of no node", slice(""), []string{"spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"}},
		{"a slice of a node and of all", slice(", nodeName: node-1, allNodes: true"), []string{"spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of"}},
		{"an attribute of two kinds", slice(", allNodes: true, devices: [{name: d, attributes: {a: {int: 1, bool: true}}}]"), []string{"exactly one value must be specified"}},
		{"a version that is none", slice(", allNodes: true, devices: [{name: d, attributes: {a: {version: x}}}]"), []string{`spec.devices[0].attributes[a].version: Invalid value: "x": must be a string compatible with semver.org spec 2.0.0`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
