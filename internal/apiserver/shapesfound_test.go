package apiserver

import (
	"fmt"
	"net/http"
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
	for _, a := range []asked{
		{"two families say nothing of the policy", "POST", services, body(`,"ipFamilies":["IPv6","IPv4"]`), nil, 422, wantsTwo, "", ""},
		{"nor does a cluster of one", "POST", services, body(`,"ipFamilies":["IPv4","IPv6"],"clusterIP":"None","selector":{"a":"b"}`), nil, 422, wantsTwo, "", ""},
		{"the policy is told first", "POST", services, body(`,"ipFamilies":["IPv6","IPv4"],"ipFamilyPolicy":"RequireDualStack"`), nil, 422, notTwo, "", ""},
		{"a family that is not here", "POST", services, body(`,"ipFamilies":["IPv6"]`), nil, 422, `invalid: spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured`, "", ""},
		{"whose endpoints nobody looks for has both", "POST", services + "?dryRun=All", body(`,"ipFamilies":["IPv6"],"clusterIP":"None"`), nil, 201, `"ipFamilies":["IPv6","IPv4"],"ipFamilyPolicy":"RequireDualStack"`, "", ""},
		{"unless it wants one", "POST", services + "?dryRun=All", body(`,"ipFamilies":["IPv6"],"clusterIP":"None","ipFamilyPolicy":"SingleStack"`), nil, 201, `"ipFamilies":["IPv6"],"ipFamilyPolicy":"SingleStack"`, "", ""},
		{"who prefers two gets what there is", "POST", services, body(`,"ipFamilyPolicy":"PreferDualStack"`), nil, 201, `"ipFamilies":["IPv4"],"ipFamilyPolicy":"PreferDualStack"`, "", ""},
		{"and keeps the policy when it is named no more", "PUT", services + "/a", body(``), nil, 200, `"ipFamilies":["IPv4"],"ipFamilyPolicy":"PreferDualStack"`, "", ""},
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
	for _, a := range []asked{
		{"two", "POST", services, `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}],"ipFamilyPolicy":"RequireDualStack"}}`, nil, 201, `"ipFamilies":["IPv4","IPv6"]`, "", ""},
		{"one family less is no reason", "PATCH", services + "/a", `{"spec":{"ipFamilies":["IPv4"]}}`, merge, 422, `spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary IP family`, "", ""},
		{"a policy is", "PATCH", services + "/a", `{"spec":{"ipFamilyPolicy":"SingleStack"}}`, merge, 200, `"ipFamilies":["IPv4"]`, "", ""},
		{"who prefers two and has one", "PATCH", services + "/a", `{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`, merge, 200, `"ipFamilies":["IPv4","IPv6"]`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestPreferDualStackServiceKeepsItsFamilies(t *testing.T) {
	s := newTestServer(t, withServices)
	const services = "/api/v1/namespaces/default/services"
	for _, a := range []asked{
		{"in a cluster of one family", "POST", services, `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}],"ipFamilyPolicy":"PreferDualStack"}}`, nil, 201, `"ipFamilies":["IPv4"]`, "", ""},
		{"that has two since", "PATCH", services + "/a", `{"metadata":{"labels":{"a":"b"}}}`, []string{"Content-Type", "application/merge-patch+json"}, 200, `"ipFamilies":["IPv4"]`, "IPv6", ""},
	} {
		a.check(t, s)
		s.cfg.ServiceCIDRs = append(s.cfg.ServiceCIDRs, netip.MustParsePrefix("fd00:10::/112"))
	}
}

// An applied configuration in another version than the stored one must be well-formed, except for
// the fields that every write sets itself.
func TestServerSetFieldsOfAnAppliedCustomResourceAreIgnored(t *testing.T) {
	a := newAPI(t)
	a.define(fmt.Sprintf(twoVersions, "preserveUnknownFields: false"))
	for _, field := range []string{"creationTimestamp: 1", "creationTimestamp: x", "creationTimestamp: true", "generation: 1.5"} {
		for _, version := range []string{"v1", "v2"} {
			code, got, _ := a.do("PATCH", hostsIn(version)+"/new?dryRun=All&fieldManager=m", "{apiVersion: two.example.com/"+version+", kind: Host, metadata: {name: new, "+field+"}}", "Content-Type", "application/apply-patch+yaml")
			if code != http.StatusCreated || at(got, "metadata", "generation") != 1.0 {
				t.Errorf("%s in %s: %d %v", field, version, code, got)
			}
		}
	}
}

// Annotations that stand for fields of v2 in v1 are dropped from v2 objects, where they would later
// be taken for those fields.
func TestAutoscalerV2DropsFieldAnnotations(t *testing.T) {
	s := newTestServer(t)
	const v2, v1 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
	const spec = `"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}`
	const old = `"autoscaling.alpha.kubernetes.io/`
	merge := []string{"Content-Type", "application/merge-patch+json"}
	for _, a := range []asked{
		{"a new one", "POST", v2, `{"metadata":{"name":"a","annotations":{"keep":"x",` + old + `current-metrics":"1",` + old + `scale-up-tolerance":"x"}},` + spec + `}`, nil, 201, `"annotations":{"keep":"x"}`, "alpha", ""},
		{"a patch", "PATCH", v2 + "/a", `{"metadata":{"annotations":{"more":"y",` + old + `behavior":"{}"}}}`, merge, 200, `"annotations":{"keep":"x","more":"y"}`, "alpha", ""},
		{"the status", "PATCH", v2 + "/a/status", `{"metadata":{"annotations":{` + old + `conditions":"[]"}},"status":{"desiredReplicas":1}}`, merge, 200, `"annotations":{"keep":"x","more":"y"}`, "alpha", ""},
		{"in v1 they are those of its fields", "PATCH", v1 + "/a", `{"metadata":{"annotations":{` + old + `conditions":"x",` + old + `metrics":"[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"m\",\"targetAverageValue\":\"1\"}}]"}}}`, merge, 200, `"autoscaling.alpha.kubernetes.io/metrics"`, "conditions", ""},
		{"which v2 has", "GET", v2 + "/a", "", nil, 200, `"metric":{"name":"m"}`, `"autoscaling.alpha`, ""},
	} {
		a.check(t, s)
	}
}

func TestInvalidDeleteOptionsAreRefused(t *testing.T) {
	s := newTestServer(t)
	const one = "/api/v1/namespaces/default/secrets/a"
	const version = `"message":"unexpected GroupVersion string: a/b/c"`
	yaml := []string{"Content-Type", "application/yaml"}
	for _, a := range []asked{
		{"a version of too many parts", "DELETE", one, `{"apiVersion":"a/b/c"}`, nil, 400, version, "", ""},
		{"with the kind", "DELETE", one, `{"kind":"DeleteOptions","apiVersion":"a/b/c"}`, nil, 400, version, "", ""},
		{"in YAML", "DELETE", one, "apiVersion: a/b/c\n", yaml, 400, version, "", ""},
		{"no YAML", "DELETE", one, "[", yaml, 400, `"message":"yaml: line 1: did not find expected node content"`, "", ""},
		{"options of any group", "DELETE", one, `{"kind":"DeleteOptions","apiVersion":"a.example/v1"}`, nil, 404, "not found", "", ""},
		{"options in YAML", "DELETE", one, "kind: DeleteOptions\napiVersion: v1\npropagationPolicy: Bad\n", yaml, 422, "propagationPolicy", "", ""},
		{"of no kind", "DELETE", one, "propagationPolicy: Bad\n", yaml, 422, "propagationPolicy", "", ""},
	} {
		a.check(t, s)
	}
}

func TestApplyOfANewObjectChecksItsUIDFirst(t *testing.T) {
	s := newTestServer(t)
	const one = "/api/v1/namespaces/default/configmaps/a?fieldManager=m"
	apply := []string{"Content-Type", "application/apply-patch+yaml"}
	body := func(meta string) string { return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + meta + `}}` }
	for _, a := range []asked{
		{"an identity of a revision that is none", "PATCH", one, body(`"name":"a","uid":"x","resourceVersion":"x"`), apply, 409, "uid mismatch: the provided object specified uid x, and no existing object was found", "", ""},
		{"and of another name", "PATCH", one, body(`"name":"b","uid":"x"`), apply, 409, "uid mismatch", "", ""},
		{"another name", "PATCH", one, body(`"name":"b"`), apply, 400, "the name of the object (b) does not match the name on the URL (a)", "", ""},
		{"a revision that is none", "PATCH", one, body(`"name":"a","resourceVersion":"x"`), apply, 500, "strconv.ParseUint", "", ""},
		{"nothing of all that", "PATCH", one, body(`"name":"a"`), apply, 201, `"name":"a"`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestDryRunOfAnApplyShowsTheSentSelfLink(t *testing.T) {
	s := newTestServer(t)
	const all, one = "/api/v1/namespaces/default/configmaps?dryRun=All", "/api/v1/namespaces/default/configmaps/a?dryRun=All&fieldManager=m"
	const body = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","selfLink":"/x"}}`
	for _, a := range []asked{
		{"a create does not", "POST", all, body, nil, 201, `"name":"a"`, "selfLink", ""},
		{"an apply", "PATCH", one, body, []string{"Content-Type", "application/apply-patch+yaml"}, 201, `"selfLink":"/x"`, "", ""},
		{"but none that is not dry", "PATCH", "/api/v1/namespaces/default/configmaps/a?fieldManager=m", body, []string{"Content-Type", "application/apply-patch+yaml"}, 201, `"name":"a"`, "selfLink", ""},
	} {
		a.check(t, s)
	}
}
