package network

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

func TestPendingAddressesAreExplainedInEvents(t *testing.T) {
	c := controllertest.New(t)
	c.Config.LoadBalancerPool = []string{"none"}
	c.Run(loadBalancerHint(0), ingressHint(0))
	controllertest.Create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
	}})
	controllertest.Create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "inside"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	controllertest.Create(c, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Spec: networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
	}})
	var service, ingress bool
	c.Eventually("an event for the Service and one for the Ingress", func() string {
		for _, e := range c.Events.List() {
			service = service || strings.Contains(e, hintReason) && strings.Contains(e, "--load-balancer-pool is none") && strings.Contains(e, "80/TCP at 3")
			ingress = ingress || strings.Contains(e, hintReason) && strings.Contains(e, "spec.ingressClassName is not set")
		}
		if service && ingress {
			return ""
		}
		return "events so far: " + strings.Join(c.Events.List(), "\n")
	})
	if n := strings.Count(strings.Join(c.Events.List(), "\n"), hintReason); n != 2 {
		t.Errorf("%d events, want one for the Service and one for the Ingress:\n%s", n, strings.Join(c.Events.List(), "\n"))
	}
}

func TestReasonsOfPendingAddresses(t *testing.T) {
	class := "example.com/lb"
	service := func(change func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}}}
		change(s)
		return s
	}
	for name, test := range map[string]struct {
		service *corev1.Service
		off     bool
		want    string
	}{
		"an address is there":      {service(func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "1.2.3.4"}} }), true, ""},
		"another type":             {service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }), true, ""},
		"on its way out":           {service(func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Time) }), true, ""},
		"a class of an add-on":     {service(func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }), false, `class "example.com/lb"`},
		"node ports are named":     {service(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30080 }), true, "80/TCP at 30080."},
		"no node ports to tell of": {service(func(*corev1.Service) {}), true, "such as MetalLB."},
		"one that knarr serves":    {service(func(*corev1.Service) {}), false, ""},
	} {
		t.Run(name, func(t *testing.T) { holds(t, whyNoLoadBalancer(test.service, test.off), test.want) })
	}

	classes := func(_, name string) (*networkingv1.IngressClass, bool) {
		return &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "example.com/ingress"}}, name == "known"
	}
	named := func(name string) *networkingv1.Ingress {
		return &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: &name}}
	}
	served := named("known")
	served.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "1.2.3.4"}}
	for name, test := range map[string]struct {
		ingress *networkingv1.Ingress
		want    string
	}{
		"an address is there":      {served, ""},
		"no class":                 {&networkingv1.Ingress{}, "spec.ingressClassName is not set"},
		"a class that is missing":  {named("other"), `IngressClass "other" does not exist`},
		"a controller that sleeps": {named("known"), `The controller "example.com/ingress"`},
	} {
		t.Run("ingress: "+name, func(t *testing.T) { holds(t, whyNoIngress(test.ingress, classes), test.want) })
	}
}

func holds(t *testing.T, got, want string) {
	t.Helper()
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
}
