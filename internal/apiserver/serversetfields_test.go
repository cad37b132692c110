package apiserver

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/service"
)

func TestNewObjectsWithServerSetFields(t *testing.T) {
	s := newTestServer(t, func(c *Config) {
		c.ServiceCIDRs, c.NodePorts = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, service.PortRange{Base: 30000, Size: 2768}
	})
	const ns = "/api/v1/namespaces/default/"
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/"
	meta := func(name, rest string) string { return `{"metadata":{"name":"` + name + `"` + rest + `}}` }
	apply := func(name, rest string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"` + rest + `}}`
	}
	for _, c := range []struct {
		name, method, path, body string
		code                     int
		says                     string
	}{
		{"a create with a revision", "POST", ns + "configmaps", meta("a", `,"resourceVersion":"1"`), 500, "resourceVersion should not be set on objects to be created"},
		{"a create with an invalid revision", "POST", ns + "configmaps", meta("b", `,"resourceVersion":"x"`), 201, ""},
		{"a dry run of a create with a revision", "POST", ns + "configmaps?dryRun=All", meta("c", `,"resourceVersion":"7"`), 201, `"resourceVersion":"7"`},
		{"a creating update with a revision", "PUT", leases + "d", meta("d", `,"resourceVersion":"1"`), 201, ""},
		{"a creating update with an invalid revision", "PUT", leases + "e", meta("e", `,"resourceVersion":"x"`), 500, `strconv.ParseUint: parsing "x": invalid syntax`},
		{"a creating apply with a revision", "PATCH", ns + "configmaps/f?fieldManager=m", apply("f", `,"resourceVersion":"1"`), 201, ""},
		{"a creating apply with a UID", "PATCH", ns + "configmaps/g?fieldManager=m", apply("g", `,"uid":"x"`), 409, "uid mismatch: the provided object specified uid x, and no existing object was found"},
		{"a dry run of an update with another UID", "PUT", ns + "configmaps/b?dryRun=All", meta("b", `,"uid":"x"`), 409, "Key: /configmaps/default/b,"},
		{"an update with another UID", "PUT", ns + "configmaps/b", meta("b", `,"uid":"x"`), 409, "Key: /registry/configmaps/default/b,"},
		{"a creating update with a UID and an invalid revision", "PUT", leases + "h", meta("h", `,"uid":"x","resourceVersion":"-1"`), 409, "UID in precondition: x, UID in object meta: "},
		{"a dry run with an invalid node port and another error", "POST", ns + "services?dryRun=All", `{"metadata":{"name":"h"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":7,"protocol":"x"}]}}`, 422, `is invalid: spec.ports[0].protocol: Unsupported value`},
		{"a dry run with an invalid node port", "POST", ns + "services?dryRun=All", `{"metadata":{"name":"h"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":7}]}}`, 422, "provided port is not in the valid range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := []string{"Content-Type", "application/json"}
			if c.method == "PATCH" {
				header[1] = "application/apply-patch+yaml"
			}
			code, _, answer := do(t, s, c.method, c.path, c.body, header...)
			if said := strings.ReplaceAll(answer, `\"`, `"`); code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("%d %s; want %d, %s", code, answer, c.code, c.says)
			}
		})
	}
}

func TestOnlyManagersOfUnknownVersionsAreDropped(t *testing.T) {
	s := newTestServer(t)
	const path = "/api/v1/namespaces/default/configmaps/a"
	const body = `{"metadata":{"name":"a","managedFields":[
		{"manager":"gone","operation":"Update","apiVersion":"v9","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}},
		{"manager":"here","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:b":{}}}}]},"data":{"a":"1","b":"2"}}`
	if code, _, answer := do(t, s, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"},"data":{"a":"1","b":"2"}}`); code != 201 {
		t.Fatal(code, answer)
	}
	code, _, answer := do(t, s, "PUT", path+"?fieldManager=other", body)
	if code != 200 || strings.Contains(answer, `"gone"`) || !strings.Contains(answer, `"here"`) {
		t.Errorf("%d %s", code, answer)
	}
}
