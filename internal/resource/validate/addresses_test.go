package validate_test

import (
	"fmt"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func TestUpdatesKeepAmbiguousAddressesOfTheSameField(t *testing.T) {
	service := func(annotation, spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {annotations: {x: '" + annotation + "'}, labels: {y: 010.0.0.1}}\nspec: {ports: [{port: 80}], " + spec + "}\n"
	}
	balanced := func(ranges string) string {
		return service("", "type: LoadBalancer, loadBalancerSourceRanges: "+ranges)
	}
	annotated := func(kind, ranges string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: '" + ranges + "'}}\nspec: {ports: [{port: 80}], type: " + kind + "}\n"
	}
	const annotation = "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: "
	endpoints := func(ip string) string {
		return "apiVersion: v1\nkind: Endpoints\nmetadata: {annotations: {x: '::ffff:127.0.0.1'}}\nsubsets: [{addresses: [{ip: '" + ip + "'}]}]\n"
	}
	policy := func(cidr, except string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {annotations: {x: 010.3.0.0/16}}\nspec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: " + cidr + ", except: " + except + "}}]}]}\n"
	}
	node := func(ranges string) string {
		return "apiVersion: v1\nkind: Node\nmetadata: {annotations: {x: 010.2.0.0/24}}\nspec: {podCIDRs: " + ranges + "}\n"
	}
	deployment := func(aliases, servers string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}, annotations: {x: 010.0.0.1}}, spec: {hostAliases: [" + aliases + "], dnsConfig: {nameservers: [" + servers + "]}, containers: [{name: c, image: i}]}}}\n"
	}
	const mapped, zeros = "must not be an IPv4-mapped IPv6 address", "must not have leading 0s"
	const subset = "must be a strict subset of `cidr`"
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a loopback address that only an annotation has", service("::ffff:127.0.0.1", ""), service("", "externalIPs: ['::ffff:127.0.0.1']"), []string{"spec.externalIPs[0]: Invalid value: \"::ffff:127.0.0.1\": " + mapped}},
		{"an address that only a label has", service("", ""), service("", "externalIPs: [010.0.0.1]"), []string{"spec.externalIPs[0]: Invalid value: \"010.0.0.1\": " + zeros}},
		{"an unchanged external address", service("", "externalIPs: [010.0.0.1]"), service("", "externalIPs: [10.0.0.2, 010.0.0.1]"), nil},
		{"an unchanged loopback address", service("", "externalIPs: ['::ffff:127.0.0.1']"), service("", "externalIPs: ['::ffff:127.0.0.1']"), []string{"may not be in the loopback range"}},
		{"an external address that was a cluster IP", service("", "clusterIP: 010.0.0.1, clusterIPs: [010.0.0.1]"), service("", "clusterIP: 010.0.0.1, clusterIPs: [010.0.0.1], externalIPs: [010.0.0.1]"), []string{"spec.externalIPs[0]: Invalid value: \"010.0.0.1\": " + zeros}},
		{"an unchanged address of the wrong family", service("", "clusterIP: 010.0.0.1, clusterIPs: [010.0.0.1], ipFamilies: [IPv6]"), service("", "clusterIP: 010.0.0.1, clusterIPs: [010.0.0.1], ipFamilies: [IPv6]"), []string{"expected an IPv6 value"}},
		{"an unchanged source range with spaces", balanced("[' 010.0.0.0/8']"), balanced("['010.0.0.0/8 ']"), nil},
		{"a new source range", balanced("[10.0.0.0/8]"), balanced("[010.0.0.0/8]"), []string{zeros}},
		{"an annotation with ranges", annotated("LoadBalancer", ""), annotated("LoadBalancer", " 10.0.0.0/8 , 2001:db8::/64"), nil},
		{"an empty annotation with ranges", annotated("LoadBalancer", "10.0.0.0/8"), annotated("LoadBalancer", " "), nil},
		{"an annotation with invalid ranges", annotated("LoadBalancer", ""), annotated("LoadBalancer", "10.0.0.0/8,,x"), []string{annotation + `Invalid value: "": must be a valid CIDR value`, annotation + `Invalid value: "x"`}},
		{"an unchanged annotation with ranges", annotated("LoadBalancer", "010.0.0.0/8"), annotated("LoadBalancer", "010.0.0.0/8"), nil},
		{"an annotation with fewer ranges", annotated("LoadBalancer", "010.0.0.0/8,10.0.0.0/8"), annotated("LoadBalancer", "010.0.0.0/8"), []string{annotation + `Invalid value: "010.0.0.0/8": ` + zeros}},
		{"an annotation with ranges of another type", annotated("LoadBalancer", "10.0.0.0/8"), annotated("NodePort", "10.0.0.0/8"), []string{annotation + "Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{"an unchanged endpoint", endpoints("010.0.0.1"), endpoints("010.0.0.1"), nil},
		{"a loopback endpoint that an annotation has", endpoints("10.0.0.1"), endpoints("::ffff:127.0.0.1"), []string{mapped, "may not be in the loopback range"}},
		{"an unchanged loopback endpoint", endpoints("::ffff:127.0.0.1"), endpoints("::ffff:127.0.0.1"), []string{"may not be in the loopback range"}},
		{"an unchanged range of a policy", policy("010.0.0.0/8", "[010.1.0.0/16]"), policy("010.0.0.0/8", "[010.1.0.0/16, 10.2.0.0/16]"), nil},
		{"a policy's range that an annotation has", policy("010.0.0.0/8", "[]"), policy("010.0.0.0/8", "[010.3.0.0/16]"), []string{"except[0]: Invalid value: \"010.3.0.0/16\": " + zeros}},
		{"an exception outside of an old range", policy("010.0.0.0/8", "[]"), policy("010.0.0.0/8", "[192.168.0.0/16, bar, 010.0.0.0/8]"), []string{"except[0]: Invalid value: \"192.168.0.0/16\": " + subset, "except[1]: Invalid value: \"bar\": must be a valid CIDR value", "except[2]: Invalid value: \"010.0.0.0/8\": " + subset}},
		{"an exception of a new ambiguous range", policy("10.0.0.0/8", "[]"), policy("011.0.0.0/8", "[192.168.0.0/16]"), []string{"ipBlock.cidr: Invalid value: \"011.0.0.0/8\": " + zeros, "except[0]: Invalid value: \"192.168.0.0/16\": " + subset}},
		{"an exception of an invalid range", policy("10.0.0.0/8", "[]"), policy("foo", "[bar]"), []string{"ipBlock.cidr: Invalid value: \"foo\": must be a valid CIDR value"}},
		{"an unchanged range of a node", node("[010.1.0.0/24]"), node("[010.1.0.0/24]"), nil},
		{"a node's range that an annotation has", node("[]"), node("[010.2.0.0/24]"), []string{zeros}},
		{"unchanged addresses of a template", deployment("{ip: 010.0.0.1}", "010.0.0.2"), deployment("{ip: 010.0.0.1}", "010.0.0.2"), nil},
		{"a template's addresses that an annotation has", deployment("{ip: 10.0.0.1}", "10.0.0.2"), deployment("{ip: 010.0.0.1}", "010.0.0.1"), []string{"hostAliases[0].ip: Invalid value: \"010.0.0.1\": " + zeros, "nameservers[0]: Invalid value: \"010.0.0.1\": " + zeros}},
		{"swapped addresses of a template", deployment("{ip: 010.0.0.1}", "010.0.0.2"), deployment("{ip: 010.0.0.2}", "010.0.0.1"), []string{"hostAliases[0].ip", "nameservers[0]"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestStatusUpdatesKeepAmbiguousAddressesOfTheSameField(t *testing.T) {
	pod := func(ip string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {x: 010.0.0.1}}\nspec: {containers: [{name: c, image: i}]}\nstatus: {qosClass: BestEffort, podIP: " + ip + ", podIPs: [{ip: " + ip + "}], hostIP: " + ip + ", hostIPs: [{ip: " + ip + "}]}\n"
	}
	service := func(ip string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {annotations: {x: 010.0.0.1}}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\nstatus: {loadBalancer: {ingress: [{ip: " + ip + "}]}}\n"
	}
	ingress := func(ip string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {annotations: {x: 010.0.0.1}}\nspec: {defaultBackend: {service: {name: a, port: {number: 80}}}}\nstatus: {loadBalancer: {ingress: [{ip: " + ip + "}]}}\n"
	}
	for name, c := range map[string]struct {
		manifest func(string) string
		want     []string
	}{"Pod": {pod, []string{"podIPs[0]", "hostIPs[0]"}}, "Service": {service, []string{"ingress[0].ip"}}, "Ingress": {ingress, []string{"ingress[0].ip"}}} {
		t.Run(name, func(t *testing.T) {
			loose, s := resourcetest.Read(t, rules.For, c.manifest("010.0.0.1"))
			clean, _ := resourcetest.Read(t, rules.For, c.manifest("10.0.0.1"))
			resourcetest.Expect(t, s.ValidateStatus(loose, loose.DeepCopyObject()))
			resourcetest.Expect(t, s.ValidateStatus(loose, clean), c.want...)
		})
	}
}

func TestStoredAddressesAreReadOnceAndOnlyOnErrors(t *testing.T) {
	const n = 1000
	reads := 0
	before := validate.StoredIn(func(yield func(string) bool) {
		for i := range n {
			if reads++; !yield(fmt.Sprintf("010.0.%d.%d", i/256, i%256)) {
				return
			}
		}
	})
	for range n {
		resourcetest.Expect(t, validate.StoredIP("10.0.0.1", before, nil))
	}
	if reads != 0 {
		t.Fatalf("%d addresses are read for ones that are well written", reads)
	}
	for i := range n {
		resourcetest.Expect(t, validate.StoredIP(fmt.Sprintf("010.0.%d.%d", i/256, i%256), before, nil))
		resourcetest.Expect(t, validate.StoredIP(fmt.Sprintf("011.0.%d.%d", i/256, i%256), before, nil), "must not have leading 0s")
	}
	if reads != n {
		t.Fatalf("%d addresses are read for %d that were there", reads, n)
	}
}
