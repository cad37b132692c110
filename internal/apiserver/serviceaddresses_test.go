package apiserver

import (
	"testing"
)

func TestAddressOutsideTheRangesIsRefused(t *testing.T) {
	s := newTestServer(t, withServices)
	const services = "/api/v1/namespaces/default/services"
	body := func(ip string) string {
		return `{"metadata":{"name":"a"},"spec":{"clusterIP":"` + ip + `","ports":[{"port":80}]}}`
	}
	for _, a := range []answerCase{
		{"the unspecified address", "POST", services, body("0.0.0.0"), nil, 422, "failed to allocate IP 0.0.0.0: the provided network does not match the current range", "", ""},
		{"the range's own address", "POST", services, body("10.43.0.0"), nil, 422, "10.43.0.0: the provided network does not match the current range", "", ""},
		{"a Service", "POST", services, `{"metadata":{"name":"b"},"spec":{"ports":[{"port":80}]}}`, nil, 201, "", "", ""},
		{"a change of its address", "PATCH", services + "/b", `{"spec":{"clusterIP":"127.0.0.1"}}`, []string{"Content-Type", "application/merge-patch+json"}, 422, "spec.clusterIPs[0]: Invalid value: [\\\"127.0.0.1\\\"]: may not change once set", "current range", ""},
		{"a dry run names the range", "POST", services + "?dryRun=All", body("0.0.0.0"), nil, 422, "the provided IP (0.0.0.0) is not in the valid range. The range of valid IPs is 10.43.0.0/24", "", ""},
	} {
		a.check(t, s)
	}
}
