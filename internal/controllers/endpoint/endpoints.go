package endpoint

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Endpoints maintains the Endpoints of Services with a selector, an older API that programs still
// read.
var Endpoints = controller.Starter{Name: "endpoints-controller", Account: "endpoint-controller", EventSource: "endpoint-controller", Run: runEndpoints}

const (
	// endpointsManagedBy marks Endpoints that this controller writes.
	endpointsManagedBy = "endpoints.kubernetes.io/managed-by"
	endpointsManager   = "endpoint-controller"
	maxAddresses       = 1000
)

type endpointsController struct {
	env       controller.Env
	services  client.ViewOf[*corev1.Service]
	pods      client.ViewOf[*corev1.Pod]
	endpoints client.ViewOf[*corev1.Endpoints]
}

func runEndpoints(ctx context.Context, env controller.Env) error {
	services, err := client.Open[*corev1.Service](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open services: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	endpoints, err := client.Open[*corev1.Endpoints](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open endpoints: %w", err)
	}
	c := &endpointsController{env: env, services: services, pods: pods, endpoints: endpoints}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "endpoints-controller",
		Inputs: []controller.Input{
			controller.Self(services),
			controller.On(pods, podKeys(services)),
			controller.On(endpoints, func(e client.TypedEvent[*corev1.Endpoints]) []controller.Key {
				// Endpoints without a Service belong to a user. But at the start, our own may have
				// outlived their Service.
				_, ok := services.Get(e.Object.Namespace, e.Object.Name)
				if !ok && e.Object.Labels[endpointsManagedBy] != endpointsManager {
					return nil
				}
				return []controller.Key{controller.KeyOf(e.Object)}
			}),
		},
		Workers:   5,
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

func (c *endpointsController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	var done controller.Result
	service, ok := c.services.Get(key.Namespace, key.Name)
	have, exists := c.endpoints.Get(key.Namespace, key.Name)
	if !ok {
		if !exists {
			return done, nil
		}
		err := client.Delete[*corev1.Endpoints](ctx, c.env.Client, key.Namespace, key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return done, err
	}
	selector, ok := selectorOf(service)
	if !ok || service.DeletionTimestamp != nil {
		return done, nil
	}
	pods := c.pods.List(service.Namespace, selector)
	subsets, truncated := subsetsOf(service, pods)
	want := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if exists {
		want = have.DeepCopy()
	}
	want.Subsets = subsets
	want.Labels = maps.Clone(service.Labels)
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	delete(want.Labels, corev1.IsHeadlessService)
	if headless(service) {
		want.Labels[corev1.IsHeadlessService] = ""
	}
	want.Labels[endpointsManagedBy] = endpointsManager
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	delete(want.Annotations, corev1.EndpointsOverCapacity)
	if truncated {
		want.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	if exists && equality.Semantic.DeepEqual(have.Subsets, want.Subsets) && maps.Equal(have.Labels, want.Labels) &&
		have.Annotations[corev1.EndpointsOverCapacity] == want.Annotations[corev1.EndpointsOverCapacity] {
		return done, nil
	}
	if trigger := latest(service, pods); trigger != "" {
		want.Annotations[corev1.EndpointsLastChangeTriggerTime] = trigger
	}
	var err error
	if exists {
		_, err = client.Update(ctx, c.env.Client, want)
	} else {
		_, err = client.Create(ctx, c.env.Client, want)
	}
	switch {
	case err == nil || controller.NamespaceTerminating(err) || apierrors.IsAlreadyExists(err):
		return done, nil
	case apierrors.IsConflict(err):
		return done, err
	}
	verb, reason := "update", "FailedToUpdateEndpoint"
	if !exists {
		verb, reason = "create", "FailedToCreateEndpoint"
	}
	c.env.Events.Eventf(service, nil, corev1.EventTypeWarning, reason, "UpdateEndpoints", "Failed to %s endpoint %s/%s: %v", verb, key.Namespace, key.Name, err)
	return done, err
}

// subsetsOf groups the pods by their resolved ports and separates ready from not ready ones.
func subsetsOf(service *corev1.Service, pods []*corev1.Pod) (subsets []corev1.EndpointSubset, truncated bool) {
	family := families(service)[0]
	found := map[string]*corev1.EndpointSubset{}
	for _, p := range pods {
		if controller.PodEnded(p) || (p.DeletionTimestamp != nil && !service.Spec.PublishNotReadyAddresses) {
			continue
		}
		ip := podIP(p, family)
		if ip == "" {
			continue
		}
		var ports []corev1.EndpointPort
		for i := range service.Spec.Ports {
			port := &service.Spec.Ports[i]
			if number, ok := resolvePort(p, port); ok {
				ports = append(ports, corev1.EndpointPort{Name: port.Name, Port: number, Protocol: port.Protocol, AppProtocol: port.AppProtocol})
			}
		}
		if len(ports) == 0 && len(service.Spec.Ports) > 0 {
			continue
		}
		slices.SortFunc(ports, func(a, b corev1.EndpointPort) int { return strings.Compare(portID(a), portID(b)) })
		var id string
		for _, port := range ports {
			id += portID(port) + ","
		}
		subset, ok := found[id]
		if !ok {
			subset = &corev1.EndpointSubset{Ports: ports}
			found[id] = subset
		}
		address := corev1.EndpointAddress{IP: ip, TargetRef: targetRef(p), Hostname: hostname(p, service)}
		if p.Spec.NodeName != "" {
			address.NodeName = &p.Spec.NodeName
		}
		if service.Spec.PublishNotReadyAddresses || controller.PodReady(p) {
			subset.Addresses = append(subset.Addresses, address)
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		subset := found[id]
		sortAddresses(subset.Addresses)
		sortAddresses(subset.NotReadyAddresses)
		subsets = append(subsets, *subset)
	}
	return truncate(subsets)
}

func portID(p corev1.EndpointPort) string {
	return fmt.Sprintf("%s|%s|%05d|%s", p.Name, p.Protocol, p.Port, deref(p.AppProtocol))
}

func sortAddresses(a []corev1.EndpointAddress) {
	slices.SortFunc(a, func(a, b corev1.EndpointAddress) int {
		if c := strings.Compare(a.IP, b.IP); c != 0 {
			return c
		}
		return strings.Compare(string(a.TargetRef.UID), string(b.TargetRef.UID))
	})
}

// truncate keeps at most maxAddresses, ready ones first, because an Endpoints object must stay
// small.
func truncate(subsets []corev1.EndpointSubset) ([]corev1.EndpointSubset, bool) {
	total := 0
	for _, s := range subsets {
		total += len(s.Addresses) + len(s.NotReadyAddresses)
	}
	if total <= maxAddresses {
		return subsets, false
	}
	room := maxAddresses
	for i := range subsets {
		n := min(room, len(subsets[i].Addresses))
		subsets[i].Addresses, room = subsets[i].Addresses[:n], room-n
	}
	for i := range subsets {
		n := min(room, len(subsets[i].NotReadyAddresses))
		subsets[i].NotReadyAddresses, room = subsets[i].NotReadyAddresses[:n], room-n
	}
	return slices.DeleteFunc(subsets, func(s corev1.EndpointSubset) bool { return len(s.Addresses)+len(s.NotReadyAddresses) == 0 }), true
}
