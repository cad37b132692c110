package loadbalancer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controller"
)

// Controller gives addresses to handled Services.
var Controller = starter(2 * time.Second)

const (
	name = "load-balancer-controller"
	// repeat keeps an event on a pending Service: events expire after an hour by default.
	repeat = 30 * time.Minute
	// cleanup is upstream's finalizer of cloud load balancers. Addresses from here need none.
	cleanup = "service.kubernetes.io/load-balancer-cleanup"

	typeIndex     = "loadbalancer/type"
	nodePortIndex = "loadbalancer/node-port"
	serviceIndex  = "loadbalancer/service"
	balanced      = "LoadBalancer"
)

// starter waits for grace until it explains a pending Service: its nodes and endpoints may be about
// to get ready.
func starter(grace time.Duration) controller.Starter {
	return controller.Starter{Name: name, Run: func(ctx context.Context, env controller.Env) error {
		c := &balancer{env: env, grace: grace, pending: map[types.NamespacedName]*complaint{}}
		err := c.run(ctx)
		if apierrors.IsForbidden(err) { // another vendor's API server has no role for it
			<-ctx.Done()
			return nil
		}
		return err
	}}
}

// balancer is the controller's state. Its only worker owns it.
type balancer struct {
	env      controller.Env
	grace    time.Duration
	services client.ViewOf[*corev1.Service]
	nodes    client.ViewOf[*corev1.Node]
	slices   client.ViewOf[*discoveryv1.EndpointSlice]
	pools    client.View // nil without LoadBalancerPools
	pending  map[types.NamespacedName]*complaint
	bad      map[string]string // reported errors by pool
}

// complaint is a reason that an event explains when it is due.
type complaint struct {
	note string
	due  time.Time
}

func (c *balancer) run(ctx context.Context) error {
	var err error
	if c.services, err = client.Open[*corev1.Service](ctx, c.env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open services: %w", err)
	}
	if c.nodes, err = client.Open[*corev1.Node](ctx, c.env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	if c.slices, err = client.Open[*discoveryv1.EndpointSlice](ctx, c.env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open endpointslices: %w", err)
	}
	c.services.AddIndex(typeIndex, func(s *corev1.Service) []string {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer || mark(s) != nil {
			return []string{balanced}
		}
		return nil
	})
	c.services.AddIndex(nodePortIndex, nodePorts)
	c.slices.AddIndex(serviceIndex, func(s *discoveryv1.EndpointSlice) []string {
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
	inputs := []controller.Input{
		controller.On(c.services, func(e client.TypedEvent[*corev1.Service]) []controller.Key {
			return one(ours(e.Object) || e.Old != nil && ours(e.Old))
		}),
		controller.On(c.nodes, func(e client.TypedEvent[*corev1.Node]) []controller.Key {
			return one(e.Old == nil || e.Type == client.Deleted || !sameNode(e.Old, e.Object))
		}),
		controller.On(c.slices, func(e client.TypedEvent[*discoveryv1.EndpointSlice]) []controller.Key {
			s, ok := c.services.Get(e.Object.Namespace, e.Object.Labels[discoveryv1.LabelServiceName])
			return one(ok && Handled(s) && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal)
		}),
	}
	if slices.Contains(c.env.Config.LoadBalancerPool, config.PoolResources) {
		if c.pools, err = openPools(ctx, c.env.Client); err != nil || c.pools == nil {
			return err
		}
		inputs = append(inputs, controller.Input{View: c.pools, Keys: func(client.Event) []controller.Key { return one(true) }})
	}
	loop := controller.Loop{Name: name, Clock: c.env.Clock, Log: c.env.Log, Queues: c.env.Queues, Inputs: inputs, Reconcile: c.round}
	return loop.Run(ctx)
}

// one is the key of a round, if there is something to do.
func one(worth bool) []controller.Key {
	if worth {
		return []controller.Key{{Name: "all"}}
	}
	return nil
}

func ours(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer || mark(s) != nil
}

func nodePorts(s *corev1.Service) []string {
	var out []string
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			out = append(out, portName(p.Protocol, p.NodePort))
		}
	}
	return out
}

// round decides about all handled Services, and writes what differs.
func (c *balancer) round(ctx context.Context, _ controller.Key) (controller.Result, error) {
	all := c.services.ByIndex(typeIndex, balanced)
	if len(all) == 0 {
		clear(c.pending)
		return controller.Result{}, nil
	}
	w := c.world(all)
	decided := map[types.NamespacedName]outcome{}
	for _, o := range decide(w) {
		decided[nameOf(o.service)] = o
	}
	var failed error
	for _, s := range all {
		o, mine := decided[nameOf(s)]
		var err error
		switch {
		case mine:
			err = c.write(ctx, s, o)
		case s.DeletionTimestamp != nil && Handled(s):
			err = c.release(ctx, s)
		case mark(s) != nil:
			err = c.forget(ctx, s)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			failed = err
		}
	}
	return controller.Result{After: c.explain(decided)}, failed
}

func (c *balancer) world(all []*corev1.Service) world {
	values := c.env.Config.LoadBalancerPool
	w := world{
		services: all, listens: c.env.Config.NodeListens, nodes: usableNodes(c.nodes.List("", nil)), endpointNodes: c.endpointNodes,
		useNodes: len(values) == 0 || slices.Contains(values, config.PoolNodes), off: slices.Contains(values, config.PoolNone),
		nodePortOwner: func(port string, except *corev1.Service) (types.NamespacedName, bool) {
			for _, s := range c.services.ByIndex(nodePortIndex, port) {
				if nameOf(s) != nameOf(except) {
					return nameOf(s), true
				}
			}
			return types.NamespacedName{}, false
		},
	}
	given := slices.DeleteFunc(slices.Clone(values), func(v string) bool {
		return v == config.PoolNodes || v == config.PoolResources || v == config.PoolNone
	})
	// config has validated them.
	if ranges, err := parseRanges(given); err == nil && len(ranges) > 0 {
		w.ranges = &pool{name: "--load-balancer-pool", ranges: ranges}
	}
	if c.pools != nil {
		w.pools = c.readPools()
	}
	return w
}

// readPools reads the LoadBalancerPools. An invalid one gets an event, and serves no Services.
func (c *balancer) readPools() []pool {
	var out []pool
	bad := map[string]string{}
	for _, obj := range c.pools.List("", nil) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		p, err := poolOf(u)
		if err != nil {
			bad[u.GetName()] = err.Error()
			if c.bad[u.GetName()] != err.Error() {
				c.env.Events.Eventf(u, nil, corev1.EventTypeWarning, "InvalidPool", "ReadPool", "The pool is not used. %v", err)
			}
			continue
		}
		out = append(out, p)
	}
	c.bad = bad
	return out
}

func (c *balancer) endpointNodes(s *corev1.Service) map[string]bool {
	out := map[string]bool{}
	for _, slice := range c.slices.ByIndex(serviceIndex, s.Namespace+"/"+s.Name) {
		for _, e := range slice.Endpoints {
			if e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out[*e.NodeName] = true
			}
		}
	}
	return out
}

// write brings the Service's status to the decision.
func (c *balancer) write(ctx context.Context, s *corev1.Service, o outcome) error {
	var ingress []corev1.LoadBalancerIngress
	vip := corev1.LoadBalancerIPModeVIP
	for _, a := range o.addresses {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: &vip})
	}
	m := mark(s)
	same := slices.Equal(addressesOf(s), o.addresses)
	if len(o.addresses) == 0 {
		if same && m == nil {
			return nil
		}
		return c.forget(ctx, s)
	}
	if same && m != nil && m.Reason == o.reason && m.Message == listed(o.addresses) && m.ObservedGeneration == s.Generation {
		return nil
	}
	s = s.DeepCopy()
	s.Status.LoadBalancer.Ingress = ingress
	apimeta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: Condition, Status: metav1.ConditionTrue, Reason: o.reason, Message: listed(o.addresses), ObservedGeneration: s.Generation,
	})
	if _, err := client.UpdateStatus(ctx, c.env.Client, s); err != nil {
		return fmt.Errorf("addresses of Service %s: %w", nameOf(s), err)
	}
	if !same && o.reason == FromPool {
		c.env.Events.Eventf(s, nil, corev1.EventTypeNormal, "AddressAssigned", "AssignAddress", "The Service has the address %s.", listed(o.addresses))
	}
	return nil
}

// forget removes the mark, and the addresses from here.
func (c *balancer) forget(ctx context.Context, s *corev1.Service) error {
	s = s.DeepCopy()
	if !foreign(s) {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	apimeta.RemoveStatusCondition(&s.Status.Conditions, Condition)
	if _, err := client.UpdateStatus(ctx, c.env.Client, s); err != nil {
		return fmt.Errorf("remove the addresses of Service %s: %w", nameOf(s), err)
	}
	return nil
}

// release lets a deleted Service go that an earlier cloud controller has marked.
func (c *balancer) release(ctx context.Context, s *corev1.Service) error {
	if !slices.Contains(s.Finalizers, cleanup) || foreign(s) {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == cleanup })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": s.ResourceVersion, "finalizers": left}})
	if err != nil {
		return err
	}
	_, err = client.Patch[*corev1.Service](ctx, c.env.Client, s.Namespace, s.Name, types.MergePatchType, patch)
	return err
}

// explain records events about pending Services that are due, and returns the time until the next
// one.
func (c *balancer) explain(decided map[types.NamespacedName]outcome) time.Duration {
	now := c.env.Now()
	var next time.Duration
	for service := range c.pending {
		if decided[service].pending == "" {
			delete(c.pending, service)
		}
	}
	for service, o := range decided {
		if o.pending == "" {
			continue
		}
		p := c.pending[service]
		if p == nil || p.note != o.pending {
			p = &complaint{note: o.pending, due: now.Add(c.grace)}
			c.pending[service] = p
		}
		if !p.due.After(now) {
			c.env.Events.Eventf(o.service, nil, corev1.EventTypeWarning, "AddressPending", "AssignAddress", "%s", p.note)
			p.due = now.Add(repeat)
		}
		if wait := p.due.Sub(now); next == 0 || wait < next {
			next = wait
		}
	}
	return next
}

// mark returns the condition that marks a holder.
func mark(s *corev1.Service) *metav1.Condition {
	return apimeta.FindStatusCondition(s.Status.Conditions, Condition)
}

// usableNodes returns the ready nodes that load balancers may use, sorted by name as Views list
// them. A node has its external addresses, or else its internal ones.
func usableNodes(all []*corev1.Node) []node {
	var out []node
	for _, n := range all {
		if !Usable(n) {
			continue
		}
		if addresses := addressesOfNode(n); len(addresses) > 0 {
			out = append(out, node{n.Name, addresses})
		}
	}
	return out
}

// Usable reports whether a node receives traffic from outside: it is ready, and has not the label
// that excludes it.
func Usable(n *corev1.Node) bool {
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded || n.DeletionTimestamp != nil {
		return false
	}
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func addressesOfNode(n *corev1.Node) []netip.Addr {
	byType := map[corev1.NodeAddressType][]netip.Addr{}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			byType[a.Type] = append(byType[a.Type], ip.Unmap())
		}
	}
	var out []netip.Addr
	for _, v4 := range []bool{true, false} {
		of := func(t corev1.NodeAddressType) []netip.Addr {
			return slices.DeleteFunc(slices.Clone(byType[t]), func(a netip.Addr) bool { return a.Is4() != v4 })
		}
		if external := of(corev1.NodeExternalIP); len(external) > 0 {
			out = append(out, external...)
		} else {
			out = append(out, of(corev1.NodeInternalIP)...)
		}
	}
	return out
}

// sameNode reports whether two states of a node are the same to load balancers.
func sameNode(a, b *corev1.Node) bool {
	return Usable(a) == Usable(b) && slices.Equal(a.Status.Addresses, b.Status.Addresses)
}
