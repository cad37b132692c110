package dra_test

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestStatusesOfDevicesAreValidated(t *testing.T) {
	const manifest = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}\n"
	const result = "request: r, driver: d.example, pool: p, device: d"
	allocation := func(rest string) string { return "allocation: {devices: {results: [{" + rest + "}]}}" }
	user := "reservedFor: [{resource: pods, name: p, uid: u}]"
	cases := []struct {
		name, old, status string
		want              []string
	}{
		{"a device and its users", "", allocation(result) + ", " + user + ", devices: [{driver: d.example, pool: p, device: d}]", nil},
		{"a device without request", "", allocation("request: x, driver: d.example, pool: p, device: d"), []string{`status.allocation.devices.results[0].request: Invalid value: "x": must be the name of a request`}},
		{"an allocation without names", "", allocation("request: r"), []string{"results[0].driver: Required value", "results[0].pool: Required value", `results[0].device: Invalid value: ""`}},
		{"a configuration without source", "", "allocation: {devices: {config: [{source: x}]}}", []string{`status.allocation.devices.config[0].source: Unsupported value: "x": supported values: "FromClaim", "FromClass"`, "status.allocation.devices.config[0].opaque: Required value"}},
		{"an unallocated device", "", allocation(result) + ", devices: [{driver: d.example, pool: p, device: e}]", []string{`status.devices[0]: Invalid value: {"Driver":"d.example","Pool":"p","Device":"e","ShareID":""}: must be an allocated device in the claim`}},
		{"a share with an invalid UUID", "", allocation(result + ", shareID: a"), []string{`results[0].shareID: Invalid value: "a": error validating uid: invalid UUID length: 1`}},
		{"addresses of a device", "", allocation(result) + ", devices: [{driver: d.example, pool: p, device: d, networkData: {ips: ['1', 10.0.0.1/24, 10.0.0.1/24, 10.0.0.1/024], hardwareAddress: " + strings.Repeat("a", 129) + "}}]", []string{
			`networkData.ips[0]: Invalid value: "1": must be a valid address in CIDR form`, `networkData.ips[2]: Duplicate value: "10.0.0.1/24"`, `networkData.ips[3]: Invalid value: "10.0.0.1/024": must be in canonical form`,
			"networkData.hardwareAddress: Too long: may not be more than 128 bytes"}},
		{"data that is not an object", "", allocation(result) + ", devices: [{driver: d.example, pool: p, device: d, data: [1]}]", []string{`status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object`}},
		{"users without an allocation", "", user, []string{"status.reservedFor: Forbidden: may not be specified when `allocated` is not set"}},
		{"a repeated user", "", allocation(result) + ", reservedFor: [{resource: pods, name: p, uid: u}, {resource: pods, name: p, uid: u}]", []string{`status.reservedFor[1]: Duplicate value: "u"`}},
		{"users without a name", "", allocation(result) + ", reservedFor: [{}]", []string{"reservedFor[0].resource: Required value", "reservedFor[0].name: Required value", "reservedFor[0].uid: Required value"}},
		{"an allocation is immutable", allocation(result), allocation("request: r, driver: d.example, pool: q, device: d"), []string{"status.allocation: Invalid value: {"}},
		{"an allocation may be removed", allocation(result), "", nil},
		{"device statuses may stay", allocation(result) + ", devices: [{driver: d.example, pool: p, device: d}]", "devices: [{driver: d.example, pool: p, device: d}]", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			claimOf := func(status string) *resourcev1.ResourceClaim {
				obj, _ := resourcetest.Read(t, rules.For, manifest)
				c := obj.(*resourcev1.ResourceClaim)
				if err := yaml.Unmarshal([]byte("{"+status+"}"), &c.Status); err != nil {
					t.Fatal(err)
				}
				return c
			}
			_, s := resourcetest.Read(t, rules.For, manifest)
			resourcetest.Expect(t, s.ValidateStatus(claimOf(c.status), claimOf(c.old)), c.want...)
		})
	}
}

func TestADeletedClaimGetsNoNewUsers(t *testing.T) {
	claimOf := func(name string) *resourcev1.ResourceClaim {
		obj, _ := resourcetest.Read(t, rules.For, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\nspec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}\n"+
			"status: {allocation: {devices: {results: [{request: r, driver: d.example, pool: p, device: d}]}}, reservedFor: [{resource: pods, name: "+name+", uid: u}]}\n")
		return obj.(*resourcev1.ResourceClaim)
	}
	_, s := resourcetest.Read(t, rules.For, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n")
	resourcetest.Expect(t, s.ValidateStatus(claimOf("a"), claimOf("a")))
	resourcetest.Expect(t, s.ValidateStatus(claimOf("b"), claimOf("a")), "status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
}

func TestNewResourceClaimsAreValidated(t *testing.T) {
	claim := func(devices string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: {devices: " + devices + "}\n"
	}
	request := "{name: r, exactly: {deviceClassName: c}}"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a constraint with an invalid subrequest name", "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}], constraints: [{matchAttribute: d.example/x, requests: [r/A_]}]}}\n", []string{`requests[0]: Invalid value: "A_": a lowercase RFC 1123 label`, `requests[0]: Invalid value: "r/A_": must be the name of a request in the claim`}},
		{"of two constraint types the first counts", claim("{requests: [" + request + "], constraints: [{matchAttribute: a, distinctAttribute: b}]}"), []string{
			`spec.devices.constraints[0].matchAttribute: Invalid value: "a": a fully qualified name must be a domain and a name separated by a slash`}},
		{"an empty constraint", claim("{requests: [" + request + "], constraints: [{}]}"), []string{`spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required`}},
		{"a toleration without key and with operator Equal", claim("{requests: [{name: r, exactly: {deviceClassName: c, tolerations: [{operator: Equal, value: v}]}}]}"), nil},
		{"capacity requests accept any name", claim("{requests: [{name: r, exactly: {deviceClassName: c, capacity: {requests: {'a b': '1'}}}}]}"), nil},
		{"a claim", claim("{requests: [" + request + "], constraints: [{requests: [r], matchAttribute: d.example/numa}]}"), nil},
		{"an empty request", claim("{requests: [{name: r}]}"), []string{"spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"}},
		{"allocation mode All with a count", claim("{requests: [{name: r, exactly: {deviceClassName: c, allocationMode: All, count: 2}}]}"), []string{"spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"}},
		{"a repeated name", claim("{requests: [" + request + ", " + request + "]}"), []string{`spec.devices.requests[1]: Duplicate value: "r"`}},
		{"a constraint with an unknown request", claim("{requests: [" + request + "], constraints: [{requests: [x], matchAttribute: a/b}]}"), []string{"spec.devices.constraints[0].requests[0]: Invalid value: \"x\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"}},
		{"a subrequest in a configuration", claim("{requests: [{name: r, firstAvailable: [{name: s, deviceClassName: c}]}], config: [{requests: [r/s], opaque: {driver: d.example, parameters: {a: b}}}]}"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
