package service

import (
	"math/big"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The range has a hundred ports. Another Service holds 30050, and the ports that a service held
// before are taken, too.
func TestServicesGetTheirRequestedNodePorts(t *testing.T) {
	// No port; any free port that was not requested; the same free port as the one before.
	const none, free, same = 0, -1, -2
	const outside = "provided port is not in the valid range. The range of valid ports is 30000-30099"
	cases := []struct {
		name, old, obj string
		want           []int32 // the last one is the health check's
		refused        string
	}{
		{"no port is requested", "", "{type: NodePort, ports: [{port: 80}]}", []int32{free, none}, ""},
		{"two protocols of a port share a node port", "", "{type: NodePort, ports: [{port: 80}, {port: 80, protocol: UDP}, {port: 81}]}", []int32{free, same, free, none}, ""},
		{"two protocols of a port share a requested node port", "", "{type: NodePort, ports: [{port: 80}, {port: 80, protocol: UDP, nodePort: 30001}]}", []int32{30001, 30001, none}, ""},
		{"two protocols of a port may request two node ports", "", "{type: NodePort, ports: [{port: 80, nodePort: 30002}, {port: 80, protocol: UDP, nodePort: 30001}]}", []int32{30002, 30001, none}, ""},
		{"the node port of another port", "", "{type: NodePort, ports: [{port: 80, nodePort: 30001}, {port: 81, protocol: UDP, nodePort: 30001}]}", nil, "spec.ports[1].nodePort: Invalid value: 30001: provided port is already allocated"},
		{"the node port of another Service", "", "{type: NodePort, ports: [{port: 80, nodePort: 30050}]}", nil, "spec.ports[0].nodePort: Invalid value: 30050: provided port is already allocated"},
		{"only the first error is reported", "", "{type: NodePort, ports: [{port: 80}, {port: 80, protocol: UDP, nodePort: 7}, {port: 81, nodePort: 8}]}", nil, "spec.ports[0].nodePort: Invalid value: 7: " + outside},
		{"a load balancer without node ports", "", "{type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}, {port: 80, protocol: UDP, nodePort: 30001}]}", []int32{none, 30001, none}, ""},
		{"a health check", "", "{type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30001}]}", []int32{30001, free}, ""},
		{"a health check at a port of the service", "", "{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30001, ports: [{port: 80, nodePort: 30001}]}", nil, "spec.healthCheckNodePort: Invalid value: 30001: provided port is already allocated"},
		{"an ExternalName Service keeps its value and holds no port", "", "{type: ExternalName, ports: [{port: 80, nodePort: 7}]}", []int32{7, none}, ""},

		{"an added port gets its own node port", "{type: NodePort, ports: [{port: 80, nodePort: 30001}]}", "{type: NodePort, ports: [{port: 80, nodePort: 30001}, {port: 80, protocol: UDP}]}", []int32{30001, free, none}, ""},
		{"ports of a changed type get their own node ports", "{type: ClusterIP, ports: [{port: 80}, {port: 80, protocol: UDP}]}", "{type: NodePort, ports: [{port: 80}, {port: 80, protocol: UDP}]}", []int32{free, free, none}, ""},
		{"two protocols may request the same node port", "{type: ClusterIP, ports: [{port: 80}]}", "{type: NodePort, ports: [{port: 80, nodePort: 30001}, {port: 81, protocol: UDP, nodePort: 30001}]}", []int32{30001, 30001, none}, ""},
		{"the port of its own health check", "{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30003, ports: [{port: 80, nodePort: 30001}]}", "{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30003, ports: [{port: 80, nodePort: 30003}]}", nil, "spec.ports[0].nodePort: Invalid value: 30003: provided port is already allocated"},
		{"a change of the health check's port is refused by validation", "{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30003, ports: [{port: 80, nodePort: 30001}]}", "{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 7, ports: [{port: 80, nodePort: 30001}]}", []int32{30001, 7}, ""},
		{"a new health check", "{type: LoadBalancer, externalTrafficPolicy: Cluster, ports: [{port: 80, nodePort: 30001}]}", "{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 7, ports: [{port: 80, nodePort: 30001}]}", nil, "spec.healthCheckNodePort: Invalid value: 7: " + outside},
	}
	service := func(spec string) *corev1.Service {
		svc := &corev1.Service{}
		if err := yaml.Unmarshal([]byte(spec), &svc.Spec); err != nil {
			t.Fatal(err)
		}
		return svc
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := &portBitmap{ports: PortRange{Base: 30000, Size: 100}, obj: &corev1.RangeAllocation{Range: "30000-30099"}, bits: new(big.Int)}
			taken := []int32{30050}
			var old *corev1.Service
			if c.old != "" {
				old = service(c.old)
				taken = append(taken, nodePorts(old)...)
			}
			for _, port := range taken {
				if err := b.take(port); err != nil {
					t.Fatal(err)
				}
			}
			svc := service(c.obj)
			if refused := b.assign(svc, old); refused != nil || c.refused != "" {
				if refused == nil || refused.Error() != c.refused {
					t.Errorf("refused: %v, want %q", refused, c.refused)
				}
				return
			}
			got := []int32{}
			for _, p := range svc.Spec.Ports {
				got = append(got, p.NodePort)
			}
			got = append(got, svc.Spec.HealthCheckNodePort)
			for i, want := range c.want {
				switch {
				case want == free && (got[i] < 30000 || slices.Contains(append(taken, got[:i]...), got[i])), want == same && got[i] != got[i-1], want >= 0 && got[i] != want:
					t.Errorf("ports %v, want %v", got, c.want)
				}
			}
		})
	}
}
