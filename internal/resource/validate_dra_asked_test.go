package resource

import (
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// The wanted errors are those of upstream's API server.
func TestDevicesAreValidatedAsUpstreamDoes(t *testing.T) {
	slice := func(rest string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec: {driver: d.example, pool: {name: p, resourceSliceCount: 1}" + rest + "}\n"
	}
	device := func(rest string) string { return slice(", allNodes: true, devices: [{name: d" + rest + "}]") }
	policy := func(p string) string {
		return device(", allowMultipleAllocations: true, capacity: {a: {value: '10', requestPolicy: " + p + "}}")
	}
	claim := func(devices string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: {devices: " + devices + "}\n"
	}
	request := "{name: r, exactly: {deviceClassName: c}}"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"the name of an attribute is told of all attributes", device(", attributes: {'0': {int: 1}}"), []string{`spec.devices[0].attributes: Invalid value: "0": a valid C identifier`}},
		{"a domain without a name", device(", attributes: {x/: {int: 1}}"), []string{`spec.devices[0].attributes: Invalid value: "": the name must not be empty`}},
		{"a name without a domain before its slash", device(", capacity: {/x: {value: '1'}}"), []string{`spec.devices[0].capacity: Invalid value: "": the domain must not be empty`}},
		{"a domain may have capitals, and a name two slashes", device(", attributes: {UP/x: {int: 1}, a/b/c: {int: 1}}"), nil},
		{"counters of one set twice", device(", consumesCounters: [{counterSet: a, counters: {a: {value: '1'}}}, {counterSet: a, counters: {b: {value: '1'}}}]"), []string{`spec.devices[0].consumesCounters[1]: Duplicate value: "a"`}},
		{"of too many nothing else is said", slice(", allNodes: true, devices: [" + strings.Repeat("{name: '-'}, ", 129) + "]"), []string{"spec.devices: Too many: 129: must have at most 128 items"}},
		{"each device says where it is", slice(", perDeviceNodeSelection: true, devices: [{name: d}, {name: e, nodeName: ''}, {name: f, nodeName: node, allNodes: true}, {name: g, allNodes: false}]"), []string{
			"spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
			`spec.devices[1].nodeName: Invalid value: "": must not be empty`, "spec.devices[1]: Required value: exactly one of",
			"spec.devices[2]: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of", "spec.devices[3].allNodes: Invalid value: false: must be either unset or set to true", "spec.devices[3]: Required value"}},
		{"conditions twice, and of both kinds", device(", bindingConditions: [a, a], bindingFailureConditions: [a]"), []string{
			`spec.devices[0].bindingConditions[1]: Duplicate value: "a"`, `spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions`}},
		{"a policy for a device that is nobody else's", device(", capacity: {a: {value: '1', requestPolicy: {}}}"), []string{"spec.devices[0].capacity[a].requestPolicy: Forbidden: allowMultipleAllocations must be true"}},
		{"choices out of order", policy("{default: '2', validValues: ['3', '3', '20', '1']}"), []string{
			`validValues[3]: Invalid value: "1": values must be sorted in ascending order`, `validValues[2]: Invalid value: "20": option is larger than capacity value: 10`,
			`validValues[1]: Duplicate value: "3"`, `validValues: Invalid value: "2": default value is not valid according to the requestPolicy`}},
		{"choices without a default", policy("{validValues: ['3']}"), []string{"requestPolicy.default: Required value: required when validValues is defined"}},
		{"choices and a range", policy("{default: '2', validValues: ['2'], validRange: {min: '1'}}"), []string{`exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`}},
		{"a range that ends before it begins", policy("{default: '2', validRange: {min: '3', max: '2', step: '7'}}"), []string{
			`validRange.min: Invalid value: "2": default is less than min: 3`, `validRange.max: Invalid value: "3": min is larger than max: 2`, `validRange.step: Invalid value: "2": value is not a multiple of a given step (7) from (3)`, `validRange.step: Invalid value: "2": value`}},
		{"a range with steps beyond its capacity", policy("{default: '1', validRange: {min: '1', max: '12', step: '12'}}"), []string{
			`validRange.max: Invalid value: "12": max is larger than capacity value: 10`, `validRange.step: Invalid value: "12": one step 13 is larger than capacity value: 10`, "validRange.step: Invalid value: \"12\": value is not"}},
		{"steps of nothing", policy("{default: '1', validRange: {min: '1', step: '0'}}"), []string{`validRange.step: Invalid value: "0": must not be zero`}},
		{"a range without a beginning", policy("{default: '1', validRange: {max: '3'}}"), []string{"validRange.min: Required value: required when validRange is defined"}},
		{"a constraint of both kinds is the first one", claim("{requests: [" + request + "], constraints: [{matchAttribute: a, distinctAttribute: b}]}"), []string{
			`spec.devices.constraints[0].matchAttribute: Invalid value: "a": a fully qualified name must be a domain and a name separated by a slash`}},
		{"a constraint of nothing", claim("{requests: [" + request + "], constraints: [{}]}"), []string{`spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required`}},
		{"a toleration of all keys may compare", claim("{requests: [{name: r, exactly: {deviceClassName: c, tolerations: [{operator: Equal, value: v}]}}]}"), nil},
		{"capacities are asked for by any name", claim("{requests: [{name: r, exactly: {deviceClassName: c, capacity: {requests: {'a b': '1'}}}}]}"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestWhatAClaimMaySayOfItsDevices(t *testing.T) {
	const manifest = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}\n"
	const result = "request: r, driver: d.example, pool: p, device: d"
	allocation := func(rest string) string { return "allocation: {devices: {results: [{" + rest + "}]}}" }
	user := "reservedFor: [{resource: pods, name: p, uid: u}]"
	cases := []struct {
		name, old, status string
		want              []string
	}{
		{"a device and who has it", "", allocation(result) + ", " + user + ", devices: [{driver: d.example, pool: p, device: d}]", nil},
		{"a device for no request", "", allocation("request: x, driver: d.example, pool: p, device: d"), []string{`status.allocation.devices.results[0].request: Invalid value: "x": must be the name of a request`}},
		{"an allocation without names", "", allocation("request: r"), []string{"results[0].driver: Required value", "results[0].pool: Required value", `results[0].device: Invalid value: ""`}},
		{"a configuration from nowhere", "", "allocation: {devices: {config: [{source: x}]}}", []string{`status.allocation.devices.config[0].source: Unsupported value: "x": supported values: "FromClaim", "FromClass"`, "status.allocation.devices.config[0].opaque: Required value"}},
		{"a device that was not allocated", "", allocation(result) + ", devices: [{driver: d.example, pool: p, device: e}]", []string{`status.devices[0]: Invalid value: {"Driver":"d.example","Pool":"p","Device":"e","ShareID":""}: must be an allocated device in the claim`}},
		{"a share that is no UUID", "", allocation(result + ", shareID: a"), []string{`results[0].shareID: Invalid value: "a": error validating uid: invalid UUID length: 1`}},
		{"addresses of a device", "", allocation(result) + ", devices: [{driver: d.example, pool: p, device: d, networkData: {ips: ['1', 10.0.0.1/24, 10.0.0.1/24, 10.0.0.1/024], hardwareAddress: " + strings.Repeat("a", 129) + "}}]", []string{
			`networkData.ips[0]: Invalid value: "1": must be a valid address in CIDR form`, `networkData.ips[2]: Duplicate value: "10.0.0.1/24"`, `networkData.ips[3]: Invalid value: "10.0.0.1/024": must be in canonical form`,
			"networkData.hardwareAddress: Too long: may not be more than 128 bytes"}},
		{"data that is no object", "", allocation(result) + ", devices: [{driver: d.example, pool: p, device: d, data: [1]}]", []string{`status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object`}},
		{"users of nothing", "", user, []string{"status.reservedFor: Forbidden: may not be specified when `allocated` is not set"}},
		{"the same user twice", "", allocation(result) + ", reservedFor: [{resource: pods, name: p, uid: u}, {resource: pods, name: p, uid: u}]", []string{`status.reservedFor[1]: Duplicate value: "u"`}},
		{"users without a name", "", allocation(result) + ", reservedFor: [{}]", []string{"reservedFor[0].resource: Required value", "reservedFor[0].name: Required value", "reservedFor[0].uid: Required value"}},
		{"what was allocated stays", allocation(result), allocation("request: r, driver: d.example, pool: q, device: d"), []string{"status.allocation: Invalid value: {"}},
		{"what was allocated is given back", allocation(result), "", nil},
		{"and what its device said may stay", allocation(result) + ", devices: [{driver: d.example, pool: p, device: d}]", "devices: [{driver: d.example, pool: p, device: d}]", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			claimOf := func(status string) *resourcev1.ResourceClaim {
				obj, _ := read(t, manifest)
				c := obj.(*resourcev1.ResourceClaim)
				if err := yaml.Unmarshal([]byte("{"+status+"}"), &c.Status); err != nil {
					t.Fatal(err)
				}
				return c
			}
			_, s := read(t, manifest)
			expect(t, s.ValidateStatus(claimOf(c.status), claimOf(c.old)), c.want...)
		})
	}
}

func TestWhoHasAClaimThatGoesStaysWhoItIs(t *testing.T) {
	claimOf := func(name string) *resourcev1.ResourceClaim {
		obj, _ := read(t, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\nspec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}\n"+
			"status: {allocation: {devices: {results: [{request: r, driver: d.example, pool: p, device: d}]}}, reservedFor: [{resource: pods, name: "+name+", uid: u}]}\n")
		return obj.(*resourcev1.ResourceClaim)
	}
	_, s := read(t, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n")
	expect(t, s.ValidateStatus(claimOf("a"), claimOf("a")))
	expect(t, s.ValidateStatus(claimOf("b"), claimOf("a")), "status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
}

func TestAClaimTemplateSaysWhatIsWrongBesideThatItStays(t *testing.T) {
	template := func(name string) string {
		return fmt.Sprintf("apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nspec: {spec: {devices: {requests: [{name: %s, exactly: {deviceClassName: c}}]}}}\n", name)
	}
	old, s := read(t, template("r"))
	obj, _ := read(t, template("'-'"))
	expect(t, s.ValidateUpdate(obj, old), `spec.spec.devices.requests[0].name: Invalid value: "-"`, "field is immutable")
}
