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
	for _, a := range []asked{
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
	for _, a := range []asked{
		{"a Service in a cluster of one family", "POST", services, `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}],"ipFamilyPolicy":"PreferDualStack"}}`, nil, 201, `"ipFamilies":["IPv4"]`, "", ""},
		{"the cluster has two families later", "PATCH", services + "/a", `{"metadata":{"labels":{"a":"b"}}}`, []string{"Content-Type", "application/merge-patch+json"}, 200, `"ipFamilies":["IPv4"]`, "IPv6", ""},
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
		{"a new autoscaler", "POST", v2, `{"metadata":{"name":"a","annotations":{"keep":"x",` + old + `current-metrics":"1",` + old + `scale-up-tolerance":"x"}},` + spec + `}`, nil, 201, `"annotations":{"keep":"x"}`, "alpha", ""},
		{"a patch", "PATCH", v2 + "/a", `{"metadata":{"annotations":{"more":"y",` + old + `behavior":"{}"}}}`, merge, 200, `"annotations":{"keep":"x","more":"y"}`, "alpha", ""},
		{"a patch of its status", "PATCH", v2 + "/a/status", `{"metadata":{"annotations":{` + old + `conditions":"[]"}},"status":{"desiredReplicas":1}}`, merge, 200, `"annotations":{"keep":"x","more":"y"}`, "alpha", ""},
		{"v1 reads the annotations as fields", "PATCH", v1 + "/a", `{"metadata":{"annotations":{` + old + `conditions":"x",` + old + `metrics":"[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"m\",\"targetAverageValue\":\"1\"}}]"}}}`, merge, 200, `"autoscaling.alpha.kubernetes.io/metrics"`, "conditions", ""},
		{"v2 has the fields", "GET", v2 + "/a", "", nil, 200, `"metric":{"name":"m"}`, `"autoscaling.alpha`, ""},
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
		{"an invalid version with the kind", "DELETE", one, `{"kind":"DeleteOptions","apiVersion":"a/b/c"}`, nil, 400, version, "", ""},
		{"an invalid version in YAML", "DELETE", one, "apiVersion: a/b/c\n", yaml, 400, version, "", ""},
		{"invalid YAML", "DELETE", one, "[", yaml, 400, `"message":"yaml: line 1: did not find expected node content"`, "", ""},
		{"options of any group", "DELETE", one, `{"kind":"DeleteOptions","apiVersion":"a.example/v1"}`, nil, 404, "not found", "", ""},
		{"options in YAML", "DELETE", one, "kind: DeleteOptions\napiVersion: v1\npropagationPolicy: Bad\n", yaml, 422, "propagationPolicy", "", ""},
		{"invalid options without a kind", "DELETE", one, "propagationPolicy: Bad\n", yaml, 422, "propagationPolicy", "", ""},
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
		{"a UID and an invalid revision", "PATCH", one, body(`"name":"a","uid":"x","resourceVersion":"x"`), apply, 409, "uid mismatch: the provided object specified uid x, and no existing object was found", "", ""},
		{"a UID and another name", "PATCH", one, body(`"name":"b","uid":"x"`), apply, 409, "uid mismatch", "", ""},
		{"another name", "PATCH", one, body(`"name":"b"`), apply, 400, "the name of the object (b) does not match the name on the URL (a)", "", ""},
		{"an invalid revision", "PATCH", one, body(`"name":"a","resourceVersion":"x"`), apply, 500, "strconv.ParseUint", "", ""},
		{"no UID and no revision", "PATCH", one, body(`"name":"a"`), apply, 201, `"name":"a"`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestDryRunOfAnApplyShowsTheSentSelfLink(t *testing.T) {
	s := newTestServer(t)
	const all, one = "/api/v1/namespaces/default/configmaps?dryRun=All", "/api/v1/namespaces/default/configmaps/a?dryRun=All&fieldManager=m"
	const body = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","selfLink":"/x"}}`
	for _, a := range []asked{
		{"a dry run of a create omits it", "POST", all, body, nil, 201, `"name":"a"`, "selfLink", ""},
		{"a dry run of an apply shows it", "PATCH", one, body, []string{"Content-Type", "application/apply-patch+yaml"}, 201, `"selfLink":"/x"`, "", ""},
		{"an apply omits it", "PATCH", "/api/v1/namespaces/default/configmaps/a?fieldManager=m", body, []string{"Content-Type", "application/apply-patch+yaml"}, 201, `"name":"a"`, "selfLink", ""},
	} {
		a.check(t, s)
	}
}
