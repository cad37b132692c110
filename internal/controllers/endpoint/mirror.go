package endpoint

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Mirror writes EndpointSlices for hand-written Endpoints of Services without a selector.
var Mirror = controller.Starter{Name: "endpointslice-mirroring-controller", Account: "endpointslicemirroring-controller", EventSource: "endpoint-slice-mirroring-controller", Run: runMirror}

const (
	mirrorManager    = "endpointslicemirroring-controller.k8s.io"
	maxMirrored      = 1000 // addresses per subset; the rest is not mirrored
	leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"
)

type mirrorController struct {
	env       controller.Env
	services  client.ViewOf[*corev1.Service]
	endpoints client.ViewOf[*corev1.Endpoints]
	slices    client.ViewOf[*discoveryv1.EndpointSlice]
}

func runMirror(ctx context.Context, env controller.Env) error {
	services, err := client.Open[*corev1.Service](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open services: %w", err)
	}
	endpoints, err := client.Open[*corev1.Endpoints](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open endpoints: %w", err)
	}
	views, err := client.Open[*discoveryv1.EndpointSlice](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open endpoint slices: %w", err)
	}
	indexSlices(views)
	c := &mirrorController{env: env, services: services, endpoints: endpoints, slices: views}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "endpointslice-mirroring-controller",
		Inputs: []controller.Input{
			controller.Self(endpoints),
			controller.Self(services),
			controller.On(views, sliceKeys(mirrorManager)),
		},
		Workers:   2,
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

func (c *mirrorController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	have := c.slices.ByIndex(byService, mirrorManager+"/"+key.Namespace+"/"+key.Name)
	endpoints, ok := c.endpoints.Get(key.Namespace, key.Name)
	if !ok || !c.mirrored(endpoints) {
		return controller.Result{}, c.deleteAll(ctx, have)
	}
	p := plan{
		owner: endpoints, gvk: endpointsKind, have: have, want: mirrorGroups(endpoints), limit: maxMirrored,
		labels: maps.Clone(endpoints.Labels), annotations: maps.Clone(endpoints.Annotations), replaceAnnotations: true,
		trigger: endpoints.Annotations[corev1.EndpointsLastChangeTriggerTime],
	}
	if p.labels == nil {
		p.labels = map[string]string{}
	}
	p.labels[discoveryv1.LabelServiceName] = endpoints.Name
	p.labels[discoveryv1.LabelManagedBy] = mirrorManager
	delete(p.annotations, corev1.LastAppliedConfigAnnotation)
	if err := p.apply(ctx, c.env.Client); err != nil && !controller.NamespaceTerminating(err) {
		c.env.Events.Eventf(endpoints, nil, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices", "UpdateEndpointSlices",
			"Error updating Endpoint Slices for Endpoints %s/%s: %v", key.Namespace, key.Name, err)
		return controller.Result{}, err
	}
	return controller.Result{}, nil
}

// mirrored reports whether the Endpoints belong to a Service without selector and do not opt out of
// mirroring.
func (c *mirrorController) mirrored(e *corev1.Endpoints) bool {
	if e.DeletionTimestamp != nil || e.Labels[discoveryv1.LabelSkipMirror] == "true" {
		return false
	}
	if _, lock := e.Annotations[leaderAnnotation]; lock {
		return false
	}
	s, ok := c.services.Get(e.Namespace, e.Name)
	return ok && s.DeletionTimestamp == nil && len(s.Spec.Selector) == 0
}

func (c *mirrorController) deleteAll(ctx context.Context, have []*discoveryv1.EndpointSlice) error {
	for _, s := range have {
		err := client.Delete[*discoveryv1.EndpointSlice](ctx, c.env.Client, s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// mirrorGroups returns the groups of the Endpoints' subsets, separated by address family. Subsets
// with the same ports share a group.
func mirrorGroups(e *corev1.Endpoints) []group {
	var order []string
	found := map[string]*group{}
	for _, subset := range e.Subsets {
		ports := []discoveryv1.EndpointPort{}
		for _, port := range subset.Ports {
			ports = append(ports, discoveryv1.EndpointPort{Name: &port.Name, Port: &port.Port, Protocol: &port.Protocol, AppProtocol: port.AppProtocol})
		}
		count := 0
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				if net.ParseIP(a.IP) == nil || count >= maxMirrored {
					continue
				}
				count++
				t := typeOfIP(a.IP)
				id := string(t) + "/" + portsID(ports)
				g, ok := found[id]
				if !ok {
					g = &group{addressType: t, ports: ports}
					found[id] = g
					order = append(order, id)
				}
				g.endpoints = append(g.endpoints, mirrorEndpoint(a, ready))
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
	}
	out := make([]group, len(order))
	for i, id := range order {
		out[i] = *found[id]
	}
	return out
}

func mirrorEndpoint(a corev1.EndpointAddress, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses:  []string{a.IP},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef:  a.TargetRef,
		NodeName:   a.NodeName,
	}
	if a.Hostname != "" {
		name := strings.ToLower(a.Hostname)
		e.Hostname = &name
	}
	return e
}
