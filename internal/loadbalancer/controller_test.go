package loadbalancer

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

func balancer80(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	for _, c := range change {
		c(s)
	}
	return s
}

// wantAddresses waits until the Service has the addresses, separated by ", ".
func wantAddresses(c *controllertest.Cluster, t *testing.T, name, want string) {
	t.Helper()
	c.Eventually(name+" has the addresses "+want, func() string {
		s, err := client.Get[*corev1.Service](t.Context(), c.Client, "default", name)
		if err != nil {
			return err.Error()
		}
		if got := listed(addressesOf(s)); got != want {
			return "it has " + got + "; events: " + strings.Join(c.Events.List(), "; ")
		}
		return ""
	})
}

func wantEvent(c *controllertest.Cluster, text string) {
	c.Eventually("an event with "+text, func() string {
		if all := strings.Join(c.Events.List(), "\n"); !strings.Contains(all, text) {
			return all
		}
		return ""
	})
}

func TestServicesShareTheAddressesOfNodes(t *testing.T) {
	c := controllertest.New(t)
	address := func(name, ip string) {
		controllertest.Retry(c, controllertest.Node(c, name, nil), func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
		}, "status")
	}
	address("a", "192.168.0.1")
	c.Run(starter(0))
	controllertest.Create(c, balancer80("web"))
	wantAddresses(c, t, "web", "192.168.0.1")
	address("b", "192.168.0.2")
	wantAddresses(c, t, "web", "192.168.0.1, 192.168.0.2")

	controllertest.Create(c, balancer80("twin"))
	wantEvent(c, "belongs to the Service default/web")
	if err := client.Delete[*corev1.Service](t.Context(), c.Client, "default", "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantAddresses(c, t, "twin", "192.168.0.1, 192.168.0.2")

	controllertest.Create(c, balancer80("near", func(s *corev1.Service) {
		s.Spec.Ports[0].Port, s.Spec.ExternalTrafficPolicy = 81, corev1.ServiceExternalTrafficPolicyLocal
	}))
	wantEvent(c, "no node has a ready endpoint")
	node := "b"
	controllertest.Create(c, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "near-1", Labels: map[string]string{discoveryv1.LabelServiceName: "near"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.5"}, NodeName: &node}},
	})
	wantAddresses(c, t, "near", "192.168.0.2")
}

func TestServicesGetAddressesFromRanges(t *testing.T) {
	c := controllertest.New(t)
	c.Config.LoadBalancerPool = []string{"192.0.2.1"}
	c.Run(starter(0))
	controllertest.Create(c, balancer80("web"))
	wantAddresses(c, t, "web", "192.0.2.1")
	controllertest.Create(c, balancer80("more"))
	wantEvent(c, "has 1, of which 1 are used")
	if err := client.Delete[*corev1.Service](t.Context(), c.Client, "default", "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantAddresses(c, t, "more", "192.0.2.1")

	// A finalizer that a cloud's controller left does not keep a deleted Service.
	controllertest.Retry(c, balancer80("more", func(s *corev1.Service) { s.Namespace = "default" }), func(s *corev1.Service) {
		s.Finalizers = []string{cleanup}
	})
	if err := client.Delete[*corev1.Service](t.Context(), c.Client, "default", "more", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the Service is gone", func() string {
		if _, err := client.Get[*corev1.Service](t.Context(), c.Client, "default", "more"); err != nil {
			return ""
		}
		return "it is there"
	})

	// A Service of another type has no address, and no condition of ours.
	controllertest.Create(c, balancer80("web"))
	wantAddresses(c, t, "web", "192.0.2.1")
	controllertest.Retry(c, balancer80("web", func(s *corev1.Service) { s.Namespace = "default" }), func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeClusterIP
		s.Spec.Ports[0].NodePort = 0
	})
	c.Eventually("the condition is gone", func() string {
		s, err := client.Get[*corev1.Service](t.Context(), c.Client, "default", "web")
		if err != nil || mark(s) != nil {
			return "it is there"
		}
		return ""
	})
}
