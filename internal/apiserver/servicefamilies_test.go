package apiserver

import (
	"net/netip"
	"testing"
)

// Upstream's answers about the two families of a Service in a cluster with one.
func TestTwoServiceFamiliesNeedAPolicy(t *testing.T) {
	s := newTestServer(t, withServices)
	const services = "/api/v1/namespaces/default/services"
	body := func(spec string) string {
		return `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}]` + spec + `}}`
	}
	const wantsTwo = `"message":"Service \"a\" is invalid: spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"`
	const notTwo = `Service \"a\" is invalid: [spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services, spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster]`
	for _, a := range []answerCase{
		{"two families without a policy", "POST", services, body(`,"ipFamilies":["IPv6","IPv4"]`), nil, 422, wantsTwo, "", ""},
		{"two families of a headless Service without a policy", "POST", services, body(`,"ipFamilies":["IPv4","IPv6"],"clusterIP":"None","selector":{"a":"b"}`), nil, 422, wantsTwo, "", ""},
		{"the policy is checked first", "POST", services, body(`,"ipFamilies":["IPv6","IPv4"],"ipFamilyPolicy":"RequireDualStack"`), nil, 422, notTwo, "", ""},
		{"a family that the cluster lacks", "POST", services, body(`,"ipFamilies":["IPv6"]`), nil, 422, `invalid: spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured`, "", ""},
		{"a headless Service without selector has both families", "POST", services + "?dryRun=All", body(`,"ipFamilies":["IPv6"],"clusterIP":"None"`), nil, 201, `"ipFamilies":["IPv6","IPv4"],"ipFamilyPolicy":"RequireDualStack"`, "", ""},
		{"a headless Service without selector, SingleStack", "POST", services + "?dryRun=All", body(`,"ipFamilies":["IPv6"],"clusterIP":"None","ipFamilyPolicy":"SingleStack"`), nil, 201, `"ipFamilies":["IPv6"],"ipFamilyPolicy":"SingleStack"`, "", ""},
		{"PreferDualStack gets the cluster's family", "POST", services, body(`,"ipFamilyPolicy":"PreferDualStack"`), nil, 201, `"ipFamilies":["IPv4"],"ipFamilyPolicy":"PreferDualStack"`, "", ""},
		{"an update without a policy keeps it", "PUT", services + "/a", body(``), nil, 200, `"ipFamilies":["IPv4"],"ipFamilyPolicy":"PreferDualStack"`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestSingleStackReleasesTheSecondFamily(t *testing.T) {
	s := newTestServer(t, withServices, func(c *Config) {
		c.ServiceCIDRs = append(c.ServiceCIDRs, netip.MustParsePrefix("fd00:10::/112"))
	})
	const services = "/api/v1/namespaces/default/services"
	merge := []string{"Content-Type", "application/merge-patch+json"}
	for _, a := range []answerCase{
		{"two", "POST", services, `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}],"ipFamilyPolicy":"RequireDualStack"}}`, nil, 201, `"ipFamilies":["IPv4","IPv6"]`, "", ""},
		{"one family less needs another policy", "PATCH", services + "/a", `{"spec":{"ipFamilies":["IPv4"]}}`, merge, 422, `spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary IP family`, "", ""},
		{"SingleStack releases the second family", "PATCH", services + "/a", `{"spec":{"ipFamilyPolicy":"SingleStack"}}`, merge, 200, `"ipFamilies":["IPv4"]`, "", ""},
		{"PreferDualStack adds it again", "PATCH", services + "/a", `{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`, merge, 200, `"ipFamilies":["IPv4","IPv6"]`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestPreferDualStackServiceKeepsItsFamilies(t *testing.T) {
	s := newTestServer(t, withServices)
	const services = "/api/v1/namespaces/default/services"
	for _, a := range []answerCase{
		{"a Service in a cluster of one family", "POST", services, `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}],"ipFamilyPolicy":"PreferDualStack"}}`, nil, 201, `"ipFamilies":["IPv4"]`, "", ""},
		{"the cluster has two families later", "PATCH", services + "/a", `{"metadata":{"labels":{"a":"b"}}}`, []string{"Content-Type", "application/merge-patch+json"}, 200, `"ipFamilies":["IPv4"]`, "IPv6", ""},
	} {
		a.check(t, s)
		s.cfg.ServiceCIDRs = append(s.cfg.ServiceCIDRs, netip.MustParsePrefix("fd00:10::/112"))
	}
}
