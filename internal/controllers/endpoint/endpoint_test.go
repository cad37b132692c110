package endpoint_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/endpoint"
	"github.com/knarr-project/knarr/internal/controllers/gc"
)

func pod(c *controllertest.Cluster, name string) *corev1.Pod {
	template := controllertest.Template("web")
	template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	return controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels}, Spec: template.Spec})
}

func service(c *controllertest.Cluster, selector map[string]string) *corev1.Service {
	return controllertest.Create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"x": "y"}}, Spec: corev1.ServiceSpec{
		Selector: selector, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}},
	}})
}

func TestASelectorMakesSlicesAndEndpoints(t *testing.T) {
	c := controllertest.New(t)
	c.Run(endpoint.Slice, endpoint.Endpoints, endpoint.Mirror, gc.Controller)
	controllertest.Node(c, "node", map[string]string{corev1.LabelTopologyZone: "z1"})
	service(c, map[string]string{"app": "web"})
	c.Eventually("there is an empty slice", func() string {
		slices := controllertest.List[*discoveryv1.EndpointSlice](c)
		if len(slices) != 1 || len(slices[0].Endpoints) != 0 {
			return fmt.Sprintf("%d slices", len(slices))
		}
		return ""
	})
	c.RunPods("node", nil)
	p := pod(c, "web-1")
	pod(c, "web-22")
	c.Eventually("both pods are ready endpoints", func() string {
		slices := controllertest.List[*discoveryv1.EndpointSlice](c)
		if len(slices) != 1 || len(slices[0].Endpoints) != 2 || !*slices[0].Endpoints[0].Conditions.Ready || !*slices[0].Endpoints[1].Conditions.Ready {
			return fmt.Sprintf("%+v", slices)
		}
		s := slices[0]
		e := s.Endpoints[0]
		if e.TargetRef.UID != p.UID { // in the order in which the pods became ready
			e = s.Endpoints[1]
		}
		if s.Labels["kubernetes.io/service-name"] != "web" || s.Labels["x"] != "y" || *s.Ports[0].Port != 8080 || *s.Ports[0].Name != "http" || e.Zone == nil || *e.Zone != "z1" || *e.NodeName != "node" || e.TargetRef.UID != p.UID {
			return fmt.Sprintf("%+v", s)
		}
		ep, err := client.Get[*corev1.Endpoints](t.Context(), c.Client, "default", "web")
		if err != nil || len(ep.Subsets) != 1 || len(ep.Subsets[0].Addresses) != 2 || ep.Subsets[0].Ports[0].Port != 8080 {
			return fmt.Sprintf("%v %+v", err, ep)
		}
		return ""
	})
	if err := client.Delete[*corev1.Service](t.Context(), c.Client, "default", "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("both are deleted with the service", func() string {
		if a, b := len(controllertest.List[*discoveryv1.EndpointSlice](c)), len(controllertest.List[*corev1.Endpoints](c)); a+b > 0 {
			return fmt.Sprint(a, b)
		}
		return ""
	})
}

func TestManyEndpointsAreSplitIntoSlices(t *testing.T) {
	c := controllertest.New(t)
	c.Run(endpoint.Slice)
	c.RunPods("node", nil)
	for i := range 130 {
		pod(c, fmt.Sprintf("web-%d", i))
	}
	service(c, map[string]string{"app": "web"})
	c.Eventually("130 in two slices", func() string {
		slices := controllertest.List[*discoveryv1.EndpointSlice](c)
		n := 0
		for _, s := range slices {
			n += len(s.Endpoints)
			if len(s.Endpoints) > 100 {
				return "a slice is too long"
			}
		}
		if n != 130 || len(slices) != 2 {
			return fmt.Sprintf("%d endpoints in %d slices", n, len(slices))
		}
		return ""
	})
}

func TestHandWrittenEndpointsAreMirrored(t *testing.T) {
	c := controllertest.New(t)
	c.Run(endpoint.Slice, endpoint.Endpoints, endpoint.Mirror, gc.Controller)
	service(c, nil)
	controllertest.Create(c, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "10.1.2.3"}}, Ports: []corev1.EndpointPort{{Name: "http", Port: 80}},
	}}})
	address := func(want string) func() string {
		return func() string {
			slices := controllertest.List[*discoveryv1.EndpointSlice](c)
			if want == "" && len(slices) == 0 {
				return ""
			}
			if len(slices) != 1 || len(slices[0].Endpoints) != 1 || slices[0].Endpoints[0].Addresses[0] != want || slices[0].Labels["endpointslice.kubernetes.io/managed-by"] != "endpointslicemirroring-controller.k8s.io" {
				return fmt.Sprintf("%+v", slices)
			}
			return ""
		}
	}
	c.Eventually("mirrored", address("10.1.2.3"))
	ep, _ := client.Get[*corev1.Endpoints](t.Context(), c.Client, "default", "web")
	ep = ep.DeepCopy()
	ep.Subsets[0].Addresses[0].IP = "10.2.3.4"
	if _, err := client.Update(t.Context(), c.Client, ep); err != nil {
		t.Fatal(err)
	}
	c.Eventually("updated", address("10.2.3.4"))
	if err := client.Delete[*corev1.Endpoints](t.Context(), c.Client, "default", "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("gone", address(""))
}
