package endpoint

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Slice maintains the EndpointSlices of Services with a selector.
var Slice = controller.Starter{Name: "endpointslice-controller", EventSource: "endpoint-slice-controller", Run: runSlice}

const (
	sliceManager = "endpointslice-controller.k8s.io"
	byService    = "endpointslice-service"
	maxEndpoints = 100 // per slice
)

type sliceController struct {
	env      controller.Env
	services client.ViewOf[*corev1.Service]
	pods     client.ViewOf[*corev1.Pod]
	nodes    client.ViewOf[*corev1.Node]
	slices   client.ViewOf[*discoveryv1.EndpointSlice]
}

func runSlice(ctx context.Context, env controller.Env) error {
	services, err := client.Open[*corev1.Service](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open services: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	nodes, err := client.Open[*corev1.Node](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	views, err := client.Open[*discoveryv1.EndpointSlice](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open endpoint slices: %w", err)
	}
	indexSlices(views)
	controller.IndexPodsByNode(pods)
	c := &sliceController{env: env, services: services, pods: pods, nodes: nodes, slices: views}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "endpointslice-controller",
		Inputs: []controller.Input{
			controller.Self(services),
			controller.On(pods, podKeys(services)),
			controller.On(nodes, c.nodeKeys),
			controller.On(views, sliceKeys(sliceManager)),
		},
		Workers:   5,
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

// indexSlices indexes slices by manager, namespace and service.
func indexSlices(view client.ViewOf[*discoveryv1.EndpointSlice]) {
	view.AddIndex(byService, func(s *discoveryv1.EndpointSlice) []string {
		return []string{s.Labels[discoveryv1.LabelManagedBy] + "/" + s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
}

// sliceKeys returns the service of a slice of this manager.
func sliceKeys(manager string) func(client.TypedEvent[*discoveryv1.EndpointSlice]) []controller.Key {
	return controller.States(func(s *discoveryv1.EndpointSlice) []controller.Key {
		if s.Labels[discoveryv1.LabelManagedBy] != manager || s.Labels[discoveryv1.LabelServiceName] == "" {
			return nil
		}
		return []controller.Key{{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}}
	})
}

// nodeKeys returns the services with a pod on the node if the node's zone changed: endpoints
// contain it.
func (c *sliceController) nodeKeys(e client.TypedEvent[*corev1.Node]) []controller.Key {
	if e.Type == client.Modified && e.Old.Labels[corev1.LabelTopologyZone] == e.Object.Labels[corev1.LabelTopologyZone] {
		return nil
	}
	if e.Object.Labels[corev1.LabelTopologyZone] == "" && e.Type != client.Modified {
		return nil
	}
	keys := podKeys(c.services)
	var out []controller.Key
	for _, p := range controller.PodsOnNode(c.pods, e.Object.Name) {
		out = append(out, keys(client.TypedEvent[*corev1.Pod]{Type: client.Added, Object: p})...)
	}
	return out
}

func (c *sliceController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	service, ok := c.services.Get(key.Namespace, key.Name)
	if !ok || service.DeletionTimestamp != nil {
		return controller.Result{}, nil // the garbage collector deletes the slices
	}
	selector, ok := selectorOf(service)
	if !ok {
		return controller.Result{}, nil
	}
	pods := c.pods.List(service.Namespace, selector)
	have := c.slices.ByIndex(byService, sliceManager+"/"+key.Namespace+"/"+key.Name)
	p := plan{
		owner: service, gvk: serviceKind, have: have, limit: maxEndpoints,
		labels: sliceLabels(service), trigger: latest(service, pods),
	}
	for _, t := range families(service) {
		p.want = append(p.want, c.groups(service, t, pods)...)
	}
	if err := p.apply(ctx, c.env.Client); err != nil {
		if controller.NamespaceTerminating(err) {
			return controller.Result{}, nil
		}
		c.env.Events.Eventf(service, nil, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices", "UpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s/%s: %v", service.Namespace, service.Name, err)
		return controller.Result{}, err
	}
	return controller.Result{}, nil
}

// sliceLabels returns the service's labels plus the labels that mark a slice as ours.
func sliceLabels(service *corev1.Service) map[string]string {
	out := maps.Clone(service.Labels)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, corev1.IsHeadlessService)
	if headless(service) {
		out[corev1.IsHeadlessService] = ""
	}
	out[discoveryv1.LabelServiceName] = service.Name
	out[discoveryv1.LabelManagedBy] = sliceManager
	return out
}

// group is a set of endpoints of one address type with the same ports.
type group struct {
	addressType discoveryv1.AddressType
	ports       []discoveryv1.EndpointPort
	endpoints   []discoveryv1.Endpoint
}

// groups sorts the pods into groups. It returns at least one, which may be empty, so that a Service
// without endpoints has a slice too.
func (c *sliceController) groups(service *corev1.Service, t discoveryv1.AddressType, pods []*corev1.Pod) []group {
	var order []string
	found := map[string]*group{}
	for _, p := range pods {
		if controller.PodEnded(p) {
			continue
		}
		ip := podIP(p, t)
		if ip == "" {
			continue
		}
		ports := portsOf(service, p)
		id := portsID(ports)
		g, ok := found[id]
		if !ok {
			g = &group{addressType: t, ports: ports}
			found[id] = g
			order = append(order, id)
		}
		g.endpoints = append(g.endpoints, c.endpoint(service, p, ip))
	}
	if len(order) == 0 {
		return []group{{addressType: t, ports: []discoveryv1.EndpointPort{}}}
	}
	out := make([]group, len(order))
	for i, id := range order {
		out[i] = *found[id]
	}
	return out
}

func (c *sliceController) endpoint(service *corev1.Service, p *corev1.Pod, ip string) discoveryv1.Endpoint {
	serving := controller.PodReady(p)
	terminating := p.DeletionTimestamp != nil
	ready := service.Spec.PublishNotReadyAddresses || (serving && !terminating)
	e := discoveryv1.Endpoint{
		Addresses:  []string{ip},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  targetRef(p),
	}
	if p.Spec.NodeName != "" {
		e.NodeName = &p.Spec.NodeName
		if node, ok := c.nodes.Get("", p.Spec.NodeName); ok {
			if zone := node.Labels[corev1.LabelTopologyZone]; zone != "" {
				e.Zone = &zone
			}
		}
	}
	if name := hostname(p, service); name != "" {
		e.Hostname = &name
	}
	if ready {
		e.Hints = hints(service, &e)
	}
	return e
}

// hints returns the zone or node that should use the endpoint by the service's trafficDistribution.
func hints(service *corev1.Service, e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	if service.Spec.TrafficDistribution == nil {
		return nil
	}
	h := &discoveryv1.EndpointHints{}
	switch *service.Spec.TrafficDistribution {
	case corev1.ServiceTrafficDistributionPreferSameNode:
		if e.NodeName != nil {
			h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
		}
		fallthrough
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
		if e.Zone != nil {
			h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
		}
	}
	if h.ForZones == nil && h.ForNodes == nil {
		return nil
	}
	return h
}

// portsOf resolves the service's ports in a pod, leaving out named ports that the pod does not
// have.
func portsOf(service *corev1.Service, p *corev1.Pod) []discoveryv1.EndpointPort {
	ports := []discoveryv1.EndpointPort{}
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		number, ok := resolvePort(p, port)
		if !ok {
			continue
		}
		name, protocol := port.Name, port.Protocol
		ports = append(ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number, AppProtocol: port.AppProtocol})
	}
	return ports
}

// portsID identifies a list of ports, in any order.
func portsID(ports []discoveryv1.EndpointPort) string {
	ids := make([]string, len(ports))
	for i, p := range ports {
		ids[i] = fmt.Sprintf("%s|%s|%d|%s", deref(p.Name), deref(p.Protocol), deref(p.Port), deref(p.AppProtocol))
	}
	sortStrings(ids)
	return strings.Join(ids, ",")
}

// endpointID identifies an endpoint: the same pod at the same address.
func endpointID(e *discoveryv1.Endpoint) string {
	uid := types.UID("")
	if e.TargetRef != nil {
		uid = e.TargetRef.UID
	}
	return string(uid) + "|" + strings.Join(e.Addresses, ",")
}

func controllerRef(owner client.Object, p *plan) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, p.gvk)}
}
