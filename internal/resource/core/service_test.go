package core_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/core"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func TestANodePortStaysWithItsPort(t *testing.T) {
	service := func(ports string) (*corev1.Service, *strategy.Strategy) {
		obj, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Service\nspec: {type: NodePort, ports: "+ports+"}\n")
		return obj.(*corev1.Service), s
	}
	cases := []struct {
		name, was, is string
		want          []int32
	}{
		{"another port number", "[{name: a, port: 80, nodePort: 30100}]", "[{name: a, port: 81}]", []int32{30100}},
		{"another protocol", "[{port: 80, nodePort: 30100}]", "[{port: 80, protocol: UDP}]", []int32{30100}},
		{"another port name", "[{name: a, port: 80, nodePort: 30100}]", "[{name: b, port: 80}]", []int32{0}},
		{"swapped port names", "[{name: a, port: 80, nodePort: 30100}, {name: b, port: 81, nodePort: 30101}]", "[{name: b, port: 80}, {name: a, port: 81}]", []int32{30101, 30100}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, behaviour := service(c.was)
			s, _ := service(c.is)
			behaviour.PrepareUpdate(s, old)
			for i, p := range s.Spec.Ports {
				if p.NodePort != c.want[i] {
					t.Errorf("port %d has the node port %d, want %d", i, p.NodePort, c.want[i])
				}
			}
		})
	}
}

// Kubernetes before 1.20 stored a single address without the list.
func TestAServiceStoredBefore120KeepsItsAddress(t *testing.T) {
	for name, spec := range map[string]string{"who sends it back": "{clusterIP: 10.0.0.11}", "who leaves it out": "{}"} {
		t.Run(name, func(t *testing.T) {
			was, behaviour := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Service\nspec: {clusterIP: 10.0.0.11}\n")
			is, _ := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Service\nspec: "+spec+"\n")
			old, s := was.(*corev1.Service), is.(*corev1.Service)
			behaviour.PrepareUpdate(s, old)
			if s.Spec.ClusterIP != "10.0.0.11" || len(s.Spec.ClusterIPs) != 1 || s.Spec.ClusterIPs[0] != "10.0.0.11" {
				t.Errorf("it has %q and %q", s.Spec.ClusterIP, s.Spec.ClusterIPs)
			}
			if len(old.Spec.ClusterIPs) != 0 {
				t.Errorf("the object that was there, which others read, has %q now", old.Spec.ClusterIPs)
			}
		})
	}
}

func TestExternalNameServicesHaveNoTrafficPolicy(t *testing.T) {
	for policy, want := range map[string]bool{"Local": false, "Cluster": false, "x": true} {
		obj, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Service\nspec: {type: ExternalName, externalName: a.example, internalTrafficPolicy: "+policy+"}\n")
		s.PrepareCreate(obj)
		if got := obj.(*corev1.Service).Spec.InternalTrafficPolicy != nil; got != want {
			t.Errorf("%s is kept: %v, want %v", policy, got, want)
		}
	}
}

func firstNodePort(obj runtime.Object) int32 { return obj.(*corev1.Service).Spec.Ports[0].NodePort }

func TestAllocatedAddressesAreComparedWithAddressesOnly(t *testing.T) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"x": "010.0.0.1"}}}
	asks := s.DeepCopy()
	asks.Spec.ClusterIP, asks.Spec.ClusterIPs = "010.0.0.1", []string{"010.0.0.1"}
	resourcetest.Expect(t, core.ValidateServiceAddresses(asks, s), "must not have leading 0s")
	resourcetest.Expect(t, core.ValidateServiceAddresses(asks, asks.DeepCopy()))
}

func TestALoadBalancerKeepsUnneededNodePorts(t *testing.T) {
	service := func(rest string) string {
		return "apiVersion: v1\nkind: Service\nspec: {" + rest + ", ports: [{port: 80, nodePort: 30000}]}\n"
	}
	for is, want := range map[string]int32{"type: LoadBalancer, allocateLoadBalancerNodePorts: false": 30000, "type: ClusterIP": 0} {
		for _, was := range []string{"type: NodePort", "type: LoadBalancer, allocateLoadBalancerNodePorts: true"} {
			old, s := resourcetest.Read(t, rules.For, service(was))
			obj, _ := resourcetest.Read(t, rules.For, service(is))
			s.PrepareUpdate(obj, old)
			if got := firstNodePort(obj); got != want {
				t.Errorf("from %s to %s: node port %d, want %d", was, is, got, want)
			}
		}
	}
}

func TestALoadBalancerHostnameIsNotAnAddress(t *testing.T) {
	service := func(hostname string) string {
		return "apiVersion: v1\nkind: Service\nspec: {type: LoadBalancer}\nstatus: {loadBalancer: {ingress: [{hostname: '" + hostname + "'}]}}\n"
	}
	for name, want := range map[string][]string{
		"a.example": nil, "1.2.3": nil, "256.1.1.1": nil,
		"10.0.0.1":  {`status.loadBalancer.ingress[0].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`},
		"010.0.0.1": {`status.loadBalancer.ingress[0].hostname: Invalid value: "010.0.0.1": must be a DNS name, not an IP address`},
	} {
		old, s := resourcetest.Read(t, rules.For, service("old"))
		obj, _ := resourcetest.Read(t, rules.For, service(name))
		resourcetest.Expect(t, s.ValidateStatus(obj, old), want...)
	}
}

func TestFieldsOfNewServicesAreValidated(t *testing.T) {
	meta := func(kind string) string {
		versions := map[string]string{"Ingress": "networking.k8s.io/v1", "IngressClass": "networking.k8s.io/v1", "NetworkPolicy": "networking.k8s.io/v1", "ServiceCIDR": "networking.k8s.io/v1", "IPAddress": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1"}
		version := versions[kind]
		if version == "" {
			version = "v1"
		}
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x}\n", version, kind)
	}
	cases := []struct {
		name, kind, body string
		want             []string
	}{
		{"a Service", "Service", "spec: {selector: {a: b}, ports: [{port: 80}]}", nil},
		{"a Service without ports", "Service", "spec: {selector: {a: b}}", []string{"spec.ports: Required value"}},
		{"a headless Service without ports", "Service", "spec: {clusterIP: None, clusterIPs: [None]}", nil},
		{"ports without names", "Service", "spec: {ports: [{port: 80}, {port: 81}]}", []string{"spec.ports[0].name: Required value", "spec.ports[1].name: Required value"}},
		{"a node port of a ClusterIP", "Service", "spec: {ports: [{port: 80, nodePort: 30000}]}", []string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
		{"a name", "Service", "spec: {type: ExternalName}", []string{"spec.externalName: Required value"}},
		{"an unknown type", "Service", "spec: {type: X, ports: [{port: 80}]}", []string{`spec.type: Unsupported value: "X"`}},
		{"a loopback address", "Service", "spec: {externalIPs: [127.0.0.1], ports: [{port: 80}]}", []string{`spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		{"ranges without balancer", "Service", "spec: {loadBalancerSourceRanges: [1.2.3.0/24], ports: [{port: 80}]}", []string{"spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewServicesAreValidated(t *testing.T) {
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}], " + spec + "}\n"
	}
	withNodePort := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80, protocol: TCP, targetPort: 80, nodePort: 7}], sessionAffinity: None, " + spec + "}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an IPv4 address as IPv6", service("externalIPs: ['::ffff:1.2.3.4']"), []string{`spec.externalIPs[0]: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address`}},
		{"None and another address", service("clusterIP: None, clusterIPs: [None, 10.0.0.1]"), []string{"spec.clusterIPs: Invalid value: [\"None\",\"10.0.0.1\"]: 'None' must be the first and only value"}},
		{"addresses without clusterIP", service("clusterIPs: [10.0.0.1]"), []string{"must be empty when `clusterIP` is not specified"}},
		{"a load balancer class of a ClusterIP Service", service("loadBalancerClass: " + strings.Repeat("a", 70)), []string{"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{"None and an invalid address", withNodePort("type: NodePort, clusterIP: None, clusterIPs: [None, a]"), []string{"spec.clusterIPs: Invalid value: [\"None\",\"a\"]: 'None' must be the first and only value", `spec.clusterIPs[1]: Invalid value: "a": must be a valid IP address`}},
		{"an address beside an invalid one", withNodePort("type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, '1']"), []string{`spec.clusterIPs[1]: Invalid value: "1": must be a valid IP address`}},
		{"None as the second address", withNodePort("type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, None]"), []string{`spec.clusterIPs[1]: Invalid value: "None": must be a valid IP address`}},
		{"a node port of an ExternalName Service", withNodePort("type: ExternalName, externalName: a.example"), nil},
		{"a node port of a ClusterIP Service", withNodePort("type: ClusterIP"), []string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestUpdatesOfServicesAreValidated(t *testing.T) {
	headless := func(families string) string {
		return "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}], clusterIP: None, clusterIPs: [None], ipFamilies: " + families + "}\n"
	}
	balancer := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nspec: {type: LoadBalancer, externalTrafficPolicy: Local, sessionAffinity: None, ports: [{port: 80, protocol: TCP, targetPort: 80}], " + spec + "}\n"
	}
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"the families of a service without addresses", headless("[IPv4, IPv6]"), headless("[IPv6, IPv4]"), nil},
		{"a health check port", balancer("healthCheckNodePort: 30000"), balancer("healthCheckNodePort: 30001"), []string{"spec.healthCheckNodePort: Forbidden: field is immutable"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestUpdatesOfServicesKeepFields(t *testing.T) {
	cases := []struct {
		name, before, after string
		want                []string
	}{
		{"a Service's address", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {clusterIP: 10.0.0.2, clusterIPs: [10.0.0.2], ports: [{port: 80}]}}",
			[]string{`spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, "---\n"+c.before)
			obj, _ := resourcetest.Read(t, rules.For, "---\n"+c.after)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestWarningsOfServices(t *testing.T) {
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {annotations: {service.kubernetes.io/topology-aware-hints: auto}}\nspec: {ports: [{port: 80}], " + spec + "}\n"
	}
	const hints = "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a service with addresses in unusual forms", service("type: LoadBalancer, loadBalancerIP: 010.0.0.1, externalIPs: ['1:0::1'], loadBalancerSourceRanges: [' 10.0.0.0/8', '1:0::/64'], trafficDistribution: PreferClose, externalName: a"), []string{
			hints, `spec.externalIPs[0]: IPv6 address "1:0::1" should be in RFC 5952 canonical format ("1::1")`, "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
			`spec.loadBalancerIP: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"`, `spec.loadBalancerSourceRanges[1]: IPv6 CIDR value "1:0::/64" should be in RFC 5952 canonical format ("1::/64")`,
			`spec.externalName is ignored when spec.type is not "ExternalName"`, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`}},
		{"a headless service with a load balancer address", service("clusterIP: None, loadBalancerIP: 1.2.3.4, externalIPs: [1.2.3.4], sessionAffinity: ClientIP"), []string{
			hints, "spec.loadBalancerIP is ignored for headless services", "spec.externalIPs is ignored for headless services", "spec.SessionAffinity is ignored for headless services"}},
		{"a load balancer with an invalid address", service("type: LoadBalancer, loadBalancerIP: x"), []string{hints}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
