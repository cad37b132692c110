package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/client"
)

// managedBy marks the slices that knarr's DNS owns.
const managedBy = "dns.knarr"

// registerRetry is the delay before a failed write is repeated.
const registerRetry = time.Second

// endpointAt is the address and port of this node's DNS.
type endpointAt struct {
	addr          netip.Addr
	port, metrics uint16
}

// register keeps the Service and this node's slice up to date until ctx ends. The first node that
// is alive also maintains the slices of nodes that are not: it marks the endpoints of silent nodes
// as not ready.
func (s *Server) register(ctx context.Context, at endpointAt) {
	wake := make(chan struct{}, 1)
	kick := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	_, nodesDone := s.nodes.Subscribe(ctx, func(e client.TypedEvent[*corev1.Node]) {
		if e.Type != client.Modified || alive(e.Old) != alive(e.Object) {
			kick()
		}
	})
	_, servicesDone := s.services.Subscribe(ctx, func(e client.TypedEvent[*corev1.Service]) {
		if e.Object.Namespace == systemNamespace && e.Object.Name == dnsServiceName {
			kick()
		}
	})
	_, slicesDone := s.slices.Subscribe(ctx, func(e client.TypedEvent[*discoveryv1.EndpointSlice]) {
		if ours(e.Object) {
			kick()
		}
	})
	defer func() { <-nodesDone; <-servicesDone; <-slicesDone }()
	for said := false; ; {
		err := s.ensure(ctx, at)
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !said {
			said = true
			slog.Warn("cannot register the DNS; trying again", "error", err)
		}
		if err == nil {
			said = false
			select {
			case <-ctx.Done():
				return
			case <-wake:
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(registerRetry):
		}
	}
}

func ours(s *discoveryv1.EndpointSlice) bool {
	return s.Namespace == systemNamespace && s.Labels[discoveryv1.LabelManagedBy] == managedBy
}

// alive is false if a node's kubelet has been silent for so long that its conditions were set to
// Unknown. A node that reports itself as not ready still answers queries.
func alive(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionUnknown
		}
	}
	return true
}

// ensure creates or updates the Service and the slices.
func (s *Server) ensure(ctx context.Context, at endpointAt) error {
	svc, err := s.ensureService(ctx)
	if err != nil {
		return err
	}
	if len(svc.Spec.Selector) > 0 {
		slog.Info("the Service kube-system/kube-dns selects pods: another DNS serves the cluster; knarr's is not registered")
		return nil
	}
	self, ok := s.nodes.Get("", s.cfg.NodeName)
	if !ok {
		return fmt.Errorf("node %s is not registered", s.cfg.NodeName)
	}
	if err := s.putSlice(ctx, s.desired(self, at)); err != nil {
		return err
	}
	return s.maintainDeadNodes(ctx)
}

// ensureService creates the Service if it does not exist. It does not change an existing one.
func (s *Server) ensureService(ctx context.Context) (*corev1.Service, error) {
	if svc, ok := s.services.Get(systemNamespace, dnsServiceName); ok {
		return svc, nil
	}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: systemNamespace, Name: dnsServiceName,
			Labels:      map[string]string{"k8s-app": dnsServiceName, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
			Annotations: map[string]string{"prometheus.io/port": fmt.Sprint(s.cfg.MetricsPort), "prometheus.io/scrape": "true"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(53)},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53, TargetPort: intstr.FromInt32(53)},
				{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9153, TargetPort: intstr.FromInt32(9153)},
			},
		},
	}
	if s.cfg.ClusterIP.IsValid() {
		svc.Spec.ClusterIP = s.cfg.ClusterIP.String()
		svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	}
	made, err := client.Create(ctx, s.cfg.Client, svc)
	if apierrors.IsAlreadyExists(err) { // another node created it first
		return client.Get[*corev1.Service](ctx, s.cfg.Client, systemNamespace, dnsServiceName)
	}
	if err != nil {
		return nil, fmt.Errorf("creating Service %s/%s: %w", systemNamespace, dnsServiceName, err)
	}
	return made, nil
}

// desired is this node's slice. The owner reference deletes it with the node. The hint keeps the
// node's queries on the node.
func (s *Server) desired(node *corev1.Node, at endpointAt) *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv6
	if at.addr.Is4() {
		family = discoveryv1.AddressTypeIPv4
	}
	port := func(name string, protocol corev1.Protocol, number uint16) discoveryv1.EndpointPort {
		n := int32(number)
		return discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &n}
	}
	ready, terminating := alive(node), false
	name := node.Name
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: systemNamespace, Name: dnsServiceName + "-" + node.Name,
			Labels: map[string]string{discoveryv1.LabelServiceName: dnsServiceName, discoveryv1.LabelManagedBy: managedBy},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{at.addr.String()}, NodeName: &name,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &terminating},
			Hints:      &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: name}}},
		}},
		Ports: []discoveryv1.EndpointPort{
			port("dns", corev1.ProtocolUDP, at.port), port("dns-tcp", corev1.ProtocolTCP, at.port), port("metrics", corev1.ProtocolTCP, at.metrics),
		},
	}
}

// putSlice creates the slice, or updates it if it differs.
func (s *Server) putSlice(ctx context.Context, want *discoveryv1.EndpointSlice) error {
	have, ok := s.slices.Get(want.Namespace, want.Name)
	if !ok {
		if _, err := client.Create(ctx, s.cfg.Client, want); err != nil {
			return fmt.Errorf("creating EndpointSlice %s: %w", want.Name, err)
		}
		return nil
	}
	if have.AddressType != want.AddressType { // immutable
		if err := client.Delete[*discoveryv1.EndpointSlice](ctx, s.cfg.Client, have.Namespace, have.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting EndpointSlice %s of the other address family: %w", have.Name, err)
		}
		return s.putSlice(ctx, want)
	}
	if apiequality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && apiequality.Semantic.DeepEqual(have.Ports, want.Ports) &&
		apiequality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences) && sameLabels(have.Labels, want.Labels) {
		return nil
	}
	update := have.DeepCopy()
	update.Endpoints, update.Ports, update.OwnerReferences, update.Labels = want.Endpoints, want.Ports, want.OwnerReferences, want.Labels
	if _, err := client.Update(ctx, s.cfg.Client, update); err != nil {
		return fmt.Errorf("updating EndpointSlice %s: %w", want.Name, err)
	}
	return nil
}

func sameLabels(a, b map[string]string) bool { return apiequality.Semantic.DeepEqual(a, b) }

// maintainDeadNodes maintains the slices of dead nodes. Only the first node that is alive does so.
func (s *Server) maintainDeadNodes(ctx context.Context) error {
	nodes := s.nodes.List("", nil)
	first := slices.IndexFunc(nodes, alive)
	if first < 0 || nodes[first].Name != s.cfg.NodeName {
		return nil
	}
	byName := map[string]*corev1.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	for _, slice := range s.slices.List(systemNamespace, nil) {
		if !ours(slice) || len(slice.Endpoints) != 1 || slice.Endpoints[0].NodeName == nil {
			continue
		}
		node, exists := byName[*slice.Endpoints[0].NodeName]
		if !exists {
			err := client.Delete[*discoveryv1.EndpointSlice](ctx, s.cfg.Client, slice.Namespace, slice.Name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting EndpointSlice %s of a deleted node: %w", slice.Name, err)
			}
			continue
		}
		ready := alive(node)
		if c := slice.Endpoints[0].Conditions; node.Name == s.cfg.NodeName || c.Ready != nil && *c.Ready == ready {
			continue
		}
		update := slice.DeepCopy()
		update.Endpoints[0].Conditions.Ready, update.Endpoints[0].Conditions.Serving = &ready, &ready
		if _, err := client.Update(ctx, s.cfg.Client, update); err != nil {
			return fmt.Errorf("updating EndpointSlice %s of a silent node: %w", slice.Name, err)
		}
	}
	return nil
}
