// Package endpoint publishes the endpoints of Services: EndpointSlices and the older Endpoints of
// Services with a selector, and EndpointSlices that mirror hand-written Endpoints.
//
// Words. A group is the endpoints of one address type with the same ports. A plan changes the
// slices of one owner to hold its groups.
//
// In: Services, Pods, Nodes, Endpoints. Out: EndpointSlices, Endpoints.
package endpoint

import (
	"cmp"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

var (
	serviceKind   = corev1.SchemeGroupVersion.WithKind("Service")
	endpointsKind = corev1.SchemeGroupVersion.WithKind("Endpoints")
)

// selectorOf returns the service's selector; ok is false for services without endpoints of ours.
func selectorOf(s *corev1.Service) (selector labels.Selector, ok bool) {
	if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, false
	}
	return labels.SelectorFromSet(s.Spec.Selector), true
}

// podKeys returns the services that select a pod, if its event can change an endpoint.
func podKeys(services client.ViewOf[*corev1.Service]) func(client.TypedEvent[*corev1.Pod]) []controller.Key {
	selecting := func(p *corev1.Pod) []controller.Key {
		var keys []controller.Key
		for _, s := range services.List(p.Namespace, nil) {
			if selector, ok := selectorOf(s); ok && selector.Matches(labels.Set(p.Labels)) {
				keys = append(keys, controller.KeyOf(s))
			}
		}
		return keys
	}
	both := controller.States(selecting)
	return func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
		if e.Type == client.Modified && !endpointChanged(e.Old, e.Object) {
			return nil
		}
		return both(e)
	}
}

// endpointChanged reports whether a field that endpoints are built from differs. Most updates of a
// pod change none.
func endpointChanged(a, b *corev1.Pod) bool {
	return controller.PodReady(a) != controller.PodReady(b) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		controller.PodEnded(a) != controller.PodEnded(b) || a.Spec.NodeName != b.Spec.NodeName || a.UID != b.UID ||
		a.Spec.Hostname != b.Spec.Hostname || a.Spec.Subdomain != b.Spec.Subdomain || a.Status.PodIP != b.Status.PodIP ||
		!slices.Equal(a.Status.PodIPs, b.Status.PodIPs) || !equality.Semantic.DeepEqual(a.Labels, b.Labels)
}

// families returns the address types of a service's endpoints.
func families(s *corev1.Service) []discoveryv1.AddressType {
	var types []discoveryv1.AddressType
	for _, f := range s.Spec.IPFamilies {
		types = append(types, addressType(f))
	}
	if len(types) > 0 {
		return types
	}
	if ip := net.ParseIP(s.Spec.ClusterIP); ip != nil && ip.To4() == nil {
		return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}
	}
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
}

func addressType(f corev1.IPFamily) discoveryv1.AddressType {
	if f == corev1.IPv6Protocol {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

func typeOfIP(ip string) discoveryv1.AddressType {
	if parsed := net.ParseIP(ip); parsed != nil && parsed.To4() == nil {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

// podIP returns the pod's first address of the type, or "".
func podIP(p *corev1.Pod, t discoveryv1.AddressType) string {
	for _, ip := range p.Status.PodIPs {
		if typeOfIP(ip.IP) == t {
			return ip.IP
		}
	}
	if len(p.Status.PodIPs) == 0 && p.Status.PodIP != "" && typeOfIP(p.Status.PodIP) == t {
		return p.Status.PodIP
	}
	return ""
}

// resolvePort returns the number of a service port in a pod; ok is false if no container has a port
// of that name.
func resolvePort(p *corev1.Pod, port *corev1.ServicePort) (number int32, ok bool) {
	if port.TargetPort.Type == intstr.Int {
		if port.TargetPort.IntVal == 0 {
			return port.Port, true
		}
		return port.TargetPort.IntVal, true
	}
	named := func(c *corev1.Container) (int32, bool) {
		for _, have := range c.Ports {
			if have.Name == port.TargetPort.StrVal && cmp.Or(have.Protocol, corev1.ProtocolTCP) == cmp.Or(port.Protocol, corev1.ProtocolTCP) {
				return have.ContainerPort, true
			}
		}
		return 0, false
	}
	for i := range p.Spec.Containers {
		if n, ok := named(&p.Spec.Containers[i]); ok {
			return n, true
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue // only sidecars keep serving
		}
		if n, ok := named(c); ok {
			return n, true
		}
	}
	return 0, false
}

// hostname returns the endpoint's own DNS name below the service's, or "".
func hostname(p *corev1.Pod, s *corev1.Service) string {
	if p.Spec.Hostname != "" && p.Spec.Subdomain == s.Name && p.Namespace == s.Namespace {
		return p.Spec.Hostname
	}
	return ""
}

func targetRef(p *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// changedAt returns the time of the pod change that the endpoint reflects.
func changedAt(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp != nil {
		return p.DeletionTimestamp.Time
	}
	if c := controller.PodCondition(p, corev1.PodReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// latest returns the value of the annotation endpoints.kubernetes.io/last-change-trigger-time, or
// "" if the time is unknown.
func latest(service *corev1.Service, pods []*corev1.Pod) string {
	t := service.CreationTimestamp.Time
	for _, p := range pods {
		if at := changedAt(p); at.After(t) {
			t = at
		}
	}
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func headless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone
}

func ownedBy(owner client.Object, ref *metav1.OwnerReference) bool {
	return ref != nil && ref.UID == owner.GetUID()
}
