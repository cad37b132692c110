package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dnsService is the Service of cluster DNS in kube-system. Each node creates it if it is missing,
// and writes one EndpointSlice of it: its part (internal/dns).
const dnsService = "kube-dns"

// service restricts the Services that a node's parts may create to that of cluster DNS. Their role
// cannot name it, because it does not exist yet. Any other Service could take any address of the
// cluster, external ones included.
func service(node string, a *Attributes) error {
	s, ok := a.Object.(*corev1.Service)
	if !ok || a.Namespace != metav1.NamespaceSystem || a.Operation != Create {
		return nil
	}
	spec := &s.Spec
	if s.Name != dnsService {
		return fmt.Errorf("node %q can only create the service %q", node, dnsService)
	}
	if spec.Type != "" && spec.Type != corev1.ServiceTypeClusterIP || len(spec.ExternalIPs) > 0 || len(spec.Selector) > 0 {
		return fmt.Errorf("node %q cannot create the service %q with a type, external addresses or a selector", node, dnsService)
	}
	return nil
}

// endpointSlice lets a node's parts write the node's part of cluster DNS. Of other nodes' parts,
// they may only correct the readiness, and delete those of removed nodes.
func (p nodeRestriction) endpointSlice(ctx context.Context, node string, a *Attributes) error {
	if a.Namespace != metav1.NamespaceSystem {
		return nil
	}
	old, _ := a.OldObject.(*discoveryv1.EndpointSlice)
	changed, _ := a.Object.(*discoveryv1.EndpointSlice)
	for _, s := range []*discoveryv1.EndpointSlice{old, changed} {
		if s != nil && !isPartOfClusterDNS(s) {
			return fmt.Errorf("node %q can only write endpoint slices of the service %q named %q and the node of its endpoint", node, dnsService, dnsService+"-")
		}
	}
	if changed != nil && partOf(changed) == node && !servesOwnNodeOnly(changed, node) {
		return fmt.Errorf("node %q can only write a part of the service %q that serves the node itself: one address, with a hint for that node alone", node, dnsService)
	}
	switch {
	case old == nil && changed == nil:
		return fmt.Errorf("unexpected type %T", a.Object)
	case old == nil && partOf(changed) == node, changed == nil && partOf(old) == node:
		return nil
	case old == nil:
		return fmt.Errorf("node %q cannot create endpoint slices of node %q", node, partOf(changed))
	}
	of := partOf(old)
	if changed != nil && of == node && partOf(changed) == node {
		return nil
	}
	other, err := p.nodes.Find(ctx, "", of)
	switch {
	case apierrors.IsNotFound(err) && changed == nil:
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case err != nil || changed == nil || !onlyReadiness(old, changed, reportsStatus(other)):
		return fmt.Errorf("node %q can only set the readiness of endpoint slices of node %q, and delete them when that node is gone", node, of)
	}
	return nil
}

// isPartOfClusterDNS reports whether a slice is one node's part of cluster DNS.
func isPartOfClusterDNS(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelServiceName] == dnsService && len(s.Endpoints) == 1 && s.Endpoints[0].NodeName != nil && s.Name == dnsService+"-"+partOf(s)
}

// servesOwnNodeOnly reports whether a slice serves its own node only. A slice for other nodes as
// well would receive queries of the whole cluster.
func servesOwnNodeOnly(s *discoveryv1.EndpointSlice, node string) bool {
	e := &s.Endpoints[0]
	return len(e.Addresses) == 1 && e.Hints != nil && len(e.Hints.ForZones) == 0 && len(e.Hints.ForNodes) == 1 && e.Hints.ForNodes[0].Name == node
}

func partOf(s *discoveryv1.EndpointSlice) string { return *s.Endpoints[0].NodeName }

// reportsStatus reports whether a node still reports its status: silence sets its conditions to
// Unknown.
func reportsStatus(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionUnknown
		}
	}
	return true
}

// onlyReadiness reports whether the endpoint's readiness is the only change and has the given
// value.
func onlyReadiness(old, changed *discoveryv1.EndpointSlice, ready bool) bool {
	c := changed.Endpoints[0].Conditions
	if c.Ready == nil || c.Serving == nil || *c.Ready != ready || *c.Serving != ready {
		return false
	}
	o, n := old.DeepCopy(), changed.DeepCopy()
	for _, s := range []*discoveryv1.EndpointSlice{o, n} {
		s.ResourceVersion, s.Generation, s.ManagedFields = "", 0, nil
		s.Endpoints[0].Conditions.Ready, s.Endpoints[0].Conditions.Serving = nil, nil
	}
	return equality.Semantic.DeepEqual(o, n)
}
