package resource

import (
	"fmt"
	"testing"
)

func TestCoreNetworkingAndPolicyKindsAreValidated(t *testing.T) {
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
		{"a ConfigMap with a bad key", "ConfigMap", "data: {'a/b': c}", []string{`data[a/b]: Invalid value: "a/b": a valid config key must consist of`}},
		{"a key in both", "ConfigMap", "data: {a: b}\nbinaryData: {a: YQ==}", []string{`data[a]: Invalid value: "a": duplicate of key present in binaryData`}},
		{"a TLS Secret without key", "Secret", "type: kubernetes.io/tls\ndata: {tls.crt: YQ==}", []string{"data[tls.key]: Required value"}},
		{"a token for nobody", "Secret", "type: kubernetes.io/service-account-token", []string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"}},
		{"broken docker credentials", "Secret", "type: kubernetes.io/dockerconfigjson\ndata: {.dockerconfigjson: YQ==}", []string{`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>"`}},
		{"a taint twice", "Node", "spec: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]}", []string{"taints must be unique by key and effect pair"}},
		{"endpoints without address", "Endpoints", "subsets: [{ports: [{port: 1}]}]", []string{"subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"}},
		{"a controller that selects others", "ReplicationController", "spec: {selector: {a: c}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}", []string{"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"}},
		{"limits upside down", "LimitRange", "spec: {limits: [{type: Container, min: {cpu: 2}, max: {cpu: 1}}]}", []string{"spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1", "min value 2 is greater than default request value 1", "min value 2 is greater than default value 1"}},
		{"an unknown quota", "ResourceQuota", "spec: {hard: {foo: 1}}", []string{
			`spec.hard[foo]: Invalid value: "foo": must be a standard resource type or fully qualified`, `spec.hard[foo]: Invalid value: "foo": must be a standard resource for quota`}},
		{"conflicting scopes", "ResourceQuota", "spec: {hard: {pods: 1}, scopes: [BestEffort, NotBestEffort]}", []string{"conflicting scopes"}},
		{"an event elsewhere", "Event", "involvedObject: {namespace: other, name: x}", []string{`involvedObject.namespace: Invalid value: "other": does not match event.namespace`}},
		{"an Ingress", "Ingress", "spec: {rules: [{host: '*.a.b', http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}", nil},
		{"an Ingress of nothing", "Ingress", "spec: {}", []string{"either `defaultBackend` or `rules` must be specified"}},
		{"a relative path", "Ingress", "spec: {rules: [{http: {paths: [{path: a, pathType: Exact, backend: {service: {name: s, port: {name: http}}}}]}}]}", []string{`spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path`}},
		{"a class of no domain", "IngressClass", "spec: {controller: x}", []string{"spec.controller: Invalid value: \"x\": must be a domain-prefixed path"}},
		{"a policy for nobody", "NetworkPolicy", "spec: {podSelector: {}, ingress: [{from: [{}]}]}", []string{"spec.ingress[0].from[0]: Required value: must specify a peer"}},
		{"an exception outside", "NetworkPolicy", "spec: {podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}]}", []string{"must be a strict subset of `cidr`"}},
		{"a budget of two kinds", "PodDisruptionBudget", "spec: {minAvailable: 1, maxUnavailable: 1}", []string{"minAvailable and maxUnavailable cannot be both set"}},
		{"more than all", "PodDisruptionBudget", "spec: {minAvailable: 101%}", []string{`spec.minAvailable: Invalid value: "101%": must not be greater than 100%`}},
		{"three ranges", "ServiceCIDR", "spec: {cidrs: [10.0.0.0/8, 'fd00::/64', 11.0.0.0/8]}", []string{"may only hold up to 2 values"}},
		{"an address of nothing", "IPAddress", "spec: {}", []string{"spec.parentRef: Required value"}},
		{"a claim of no size", "PersistentVolumeClaim", "spec: {accessModes: [ReadWriteOnce]}", []string{"spec.resources[storage]: Required value"}},
		{"a volume of no kind", "PersistentVolume", "spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}}", []string{"spec: Required value: must specify a volume type"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, meta(c.kind)+c.body)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestWhatCoreKindsKeepOnUpdate(t *testing.T) {
	cases := []struct {
		name, before, after string
		want                []string
	}{
		{"an immutable ConfigMap", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, immutable: true, data: {a: b}}", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: c}}",
			[]string{"immutable: Forbidden: field is immutable when `immutable` is set", "data: Forbidden: field is immutable when `immutable` is set"}},
		{"a Secret's type", "{apiVersion: v1, kind: Secret, metadata: {name: x}, type: a}", "{apiVersion: v1, kind: Secret, metadata: {name: x}, type: b}", []string{`type: Invalid value: "b": field is immutable`}},
		{"a Service's address", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {clusterIP: 10.0.0.2, clusterIPs: [10.0.0.2], ports: [{port: 80}]}}",
			[]string{`spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`}},
		{"a node's range", "{apiVersion: v1, kind: Node, metadata: {name: x}, spec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.0.0/24]}}", "{apiVersion: v1, kind: Node, metadata: {name: x}, spec: {podCIDR: 10.0.1.0/24, podCIDRs: [10.0.1.0/24]}}", []string{"spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"}},
		{"a claim's class", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {storageClassName: a, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {storageClassName: b, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
			[]string{"spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"}},
		{"a volume's source", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /a}}}", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /b}}}",
			[]string{"spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := read(t, "---\n"+c.before)
			obj, _ := read(t, "---\n"+c.after)
			expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}
