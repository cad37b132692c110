package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestRowsOfServices(t *testing.T) {
	cases := []struct {
		name          string
		service       corev1.Service
		external, ips string
		ports         string
	}{
		{"cluster IP", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80, Protocol: "TCP"}}}}, columns.None, "10.0.0.1", "80/TCP"},
		{"headless", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "None"}}, columns.None, "None", columns.None},
		{"node port", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, Protocol: "TCP"}, {Port: 53, NodePort: 30053, Protocol: "UDP"}}}}, columns.None, "10.0.0.1", "80:30080/TCP,53:30053/UDP"},
		{"load balancer without address", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.0.0.1"}}, "<pending>", "10.0.0.1", columns.None},
		{"external name", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.example"}}, "a.example", columns.None, columns.None},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			row := serviceRow(&c.service, resourcetest.Now)
			if row[2] != c.ips || row[3] != c.external || row[4] != c.ports {
				t.Errorf("got %v", row)
			}
		})
	}
}

func TestUpdatesOfServicesKeepAllocatedAddressesAndPorts(t *testing.T) {
	s := ServiceStrategy()
	old := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
		Ports: []corev1.ServicePort{{Name: "a", Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30080}, {Name: "b", Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30053}},
	}}
	t.Run("a manifest without addresses", func(t *testing.T) {
		n := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{
			{Name: "b", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "c", Port: 81, Protocol: corev1.ProtocolTCP}}}}
		s.PrepareUpdate(n, old)
		if n.Spec.ClusterIP != "10.0.0.1" || len(n.Spec.ClusterIPs) != 1 || n.Spec.Ports[0].NodePort != 30053 || n.Spec.Ports[1].NodePort != 0 {
			t.Errorf("%+v", n.Spec)
		}
	})
	t.Run("to a cluster IP", func(t *testing.T) {
		n := old.DeepCopy()
		n.Spec.Type = corev1.ServiceTypeClusterIP
		s.PrepareUpdate(n, old)
		if n.Spec.Ports[0].NodePort != 0 || n.Spec.ExternalTrafficPolicy != "" || n.Spec.ClusterIP == "" {
			t.Errorf("%+v", n.Spec)
		}
	})
	t.Run("to an external name", func(t *testing.T) {
		n := old.DeepCopy()
		n.Spec.Type, n.Spec.ExternalName = corev1.ServiceTypeExternalName, "a.example"
		s.PrepareUpdate(n, old)
		if n.Spec.ClusterIP != "" || n.Spec.ClusterIPs != nil || n.Spec.Ports[0].NodePort != 0 || n.Spec.IPFamilies != nil {
			t.Errorf("%+v", n.Spec)
		}
	})
}
