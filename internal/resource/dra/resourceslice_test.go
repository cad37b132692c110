package dra_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNewResourceSlicesAreValidated(t *testing.T) {
	slice := func(rest string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec: {driver: d.example, pool: {name: p, resourceSliceCount: 1}" + rest + "}\n"
	}
	device := func(rest string) string { return slice(", allNodes: true, devices: [{name: d" + rest + "}]") }
	policy := func(p string) string {
		return device(", allowMultipleAllocations: true, capacity: {a: {value: '10', requestPolicy: " + p + "}}")
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"errors about attribute names are at the list", device(", attributes: {'0': {int: 1}}"), []string{`spec.devices[0].attributes: Invalid value: "0": a valid C identifier`}},
		{"a name that ends with a slash", device(", attributes: {x/: {int: 1}}"), []string{`spec.devices[0].attributes: Invalid value: "": the name must not be empty`}},
		{"a name that starts with a slash", device(", capacity: {/x: {value: '1'}}"), []string{`spec.devices[0].capacity: Invalid value: "": the domain must not be empty`}},
		{"a domain in capitals and a name with two slashes", device(", attributes: {UP/x: {int: 1}, a/b/c: {int: 1}}"), nil},
		{"a repeated counter set", device(", consumesCounters: [{counterSet: a, counters: {a: {value: '1'}}}, {counterSet: a, counters: {b: {value: '1'}}}]"), []string{`spec.devices[0].consumesCounters[1]: Duplicate value: "a"`}},
		{"a list that is too long gets only that error", slice(", allNodes: true, devices: [" + strings.Repeat("{name: '-'}, ", 129) + "]"), []string{"spec.devices: Too many: 129: must have at most 128 items"}},
		{"node selection per device", slice(", perDeviceNodeSelection: true, devices: [{name: d}, {name: e, nodeName: ''}, {name: f, nodeName: node, allNodes: true}, {name: g, allNodes: false}]"), []string{
			"spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
			`spec.devices[1].nodeName: Invalid value: "": must not be empty`, "spec.devices[1]: Required value: exactly one of",
			"spec.devices[2]: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of", "spec.devices[3].allNodes: Invalid value: false: must be either unset or set to true", "spec.devices[3]: Required value"}},
		{"repeated conditions in both lists", device(", bindingConditions: [a, a], bindingFailureConditions: [a]"), []string{
			`spec.devices[0].bindingConditions[1]: Duplicate value: "a"`, `spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions`}},
		{"a request policy without multiple allocations", device(", capacity: {a: {value: '1', requestPolicy: {}}}"), []string{"spec.devices[0].capacity[a].requestPolicy: Forbidden: allowMultipleAllocations must be true"}},
		{"unsorted choices", policy("{default: '2', validValues: ['3', '3', '20', '1']}"), []string{
			`validValues[3]: Invalid value: "1": values must be sorted in ascending order`, `validValues[2]: Invalid value: "20": option is larger than capacity value: 10`,
			`validValues[1]: Duplicate value: "3"`, `validValues: Invalid value: "2": default value is not valid according to the requestPolicy`}},
		{"choices without a default", policy("{validValues: ['3']}"), []string{"requestPolicy.default: Required value: required when validValues is defined"}},
		{"choices and a range", policy("{default: '2', validValues: ['2'], validRange: {min: '1'}}"), []string{`exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`}},
		{"a range with max below min", policy("{default: '2', validRange: {min: '3', max: '2', step: '7'}}"), []string{
			`validRange.min: Invalid value: "2": default is less than min: 3`, `validRange.max: Invalid value: "3": min is larger than max: 2`, `validRange.step: Invalid value: "2": value is not a multiple of a given step (7) from (3)`, `validRange.step: Invalid value: "2": value`}},
		{"a range with a step above the capacity", policy("{default: '1', validRange: {min: '1', max: '12', step: '12'}}"), []string{
			`validRange.max: Invalid value: "12": max is larger than capacity value: 10`, `validRange.step: Invalid value: "12": one step 13 is larger than capacity value: 10`, "validRange.step: Invalid value: \"12\": value is not"}},
		{"a step of zero", policy("{default: '1', validRange: {min: '1', step: '0'}}"), []string{`validRange.step: Invalid value: "0": must not be zero`}},
		{"a range without min", policy("{default: '1', validRange: {max: '3'}}"), []string{"validRange.min: Required value: required when validRange is defined"}},
		{"a slice of a node", slice(", nodeName: node-1, devices: [{name: d, attributes: {numa: {int: 1}}}]"), nil},
		{"a slice without nodes", slice(""), []string{"spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"}},
		{"a slice with a node and allNodes", slice(", nodeName: node-1, allNodes: true"), []string{"spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of"}},
		{"an attribute with two values", slice(", allNodes: true, devices: [{name: d, attributes: {a: {int: 1, bool: true}}}]"), []string{"exactly one value must be specified"}},
		{"an invalid version", slice(", allNodes: true, devices: [{name: d, attributes: {a: {version: x}}}]"), []string{`spec.devices[0].attributes[a].version: Invalid value: "x": must be a string compatible with semver.org spec 2.0.0`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewResourceSlicesAreValidatedWithTheirMetadata(t *testing.T) {
	slice := func(rest string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec: {driver: d.example, nodeName: node-1, pool: {name: p, resourceSliceCount: 1}" + rest + "}\n"
	}
	const both = "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed"
	long := strings.Repeat("abcdefghij", 10)
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a slice with devices and a list of no counters", slice(", devices: [{name: d}], sharedCounters: []"), []string{both}},
		{"a slice with counters and a list of no devices", slice(", devices: [], sharedCounters: [{name: c, counters: {m: {value: '1'}}}]"), []string{both}},
		{"a slice with two empty lists", slice(", devices: [], sharedCounters: []"), []string{both}},
		{"a slice with one empty list", slice(", devices: []"), nil},
		{"an attribute whose name is too long is shown without its middle", slice(", devices: [{name: d, attributes: {" + long + ": {}}}]"), []string{
			"spec.devices[0].attributes: Too long: may not be more than 32 bytes", "spec.devices[0].attributes[" + long[:47] + "..." + long[54:] + `]: Invalid value: "": exactly one value must be specified`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}
