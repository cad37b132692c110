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

// nameService is the Service of cluster DNS in kube-system. Each node makes it if it is not there, and keeps a slice of it: its own part (internal/dns).
const nameService = "kube-dns"

// service: the role that lets nodes make the Service of cluster DNS can not name it. Another one could take any address of the whole cluster's, external ones among them.
func service(node string, a *Attributes) error {
	s, ok := a.Object.(*corev1.Service)
	if !ok || a.Namespace != metav1.NamespaceSystem || a.Operation != Create {
		return nil
	}
	spec := &s.Spec
	if s.Name != nameService {
		return fmt.Errorf("node %q can only create the service %q", node, nameService)
	}
	if spec.Type != "" && spec.Type != corev1.ServiceTypeClusterIP || len(spec.ExternalIPs) > 0 || len(spec.Selector) > 0 {
		return fmt.Errorf("node %q can not create the service %q with a type, external addresses or a selector", node, nameService)
	}
	return nil
}

// endpointSlice: a node writes its own part of cluster DNS, and of the parts of others only whether they are ready, which must be so.
func (p nodeRestriction) endpointSlice(ctx context.Context, node string, a *Attributes) error {
	if a.Namespace != metav1.NamespaceSystem {
		return nil
	}
	old, _ := a.OldObject.(*discoveryv1.EndpointSlice)
	changed, _ := a.Object.(*discoveryv1.EndpointSlice)
	for _, s := range []*discoveryv1.EndpointSlice{old, changed} {
		if s != nil && !isPartOfNames(s) {
			return fmt.Errorf("node %q can only write endpoint slices of the service %q that are named %q and its endpoint's node", node, nameService, nameService+"-")
		}
	}
	if changed != nil && partOf(changed) == node && !staysHome(changed, node) {
		return fmt.Errorf("node %q can only offer its part of the service %q to itself: one address, with a hint for that node alone", node, nameService)
	}
	switch {
	case old == nil && changed == nil:
		return fmt.Errorf("unexpected type %T", a.Object)
	case old == nil && partOf(changed) == node, changed == nil && partOf(old) == node:
		return nil
	case old == nil:
		return fmt.Errorf("node %q can not create endpoint slices of node %q", node, partOf(changed))
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
	case err != nil || changed == nil || !onlyReadiness(old, changed, answers(other)):
		return fmt.Errorf("node %q can only say of the endpoint slices of node %q whether that is ready, and delete them when it is gone", node, of)
	}
	return nil
}

// isPartOfNames tells whether a slice is one node's part of cluster DNS.
func isPartOfNames(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelServiceName] == nameService && len(s.Endpoints) == 1 && s.Endpoints[0].NodeName != nil && s.Name == nameService+"-"+partOf(s)
}

// staysHome tells whether a slice is for its node alone. A single one that is for others as well would take part in what all of them ask.
func staysHome(s *discoveryv1.EndpointSlice, node string) bool {
	e := &s.Endpoints[0]
	return len(e.Addresses) == 1 && e.Hints != nil && len(e.Hints.ForZones) == 0 && len(e.Hints.ForNodes) == 1 && e.Hints.ForNodes[0].Name == node
}

func partOf(s *discoveryv1.EndpointSlice) string { return *s.Endpoints[0].NodeName }

// answers is false of a node that has been silent for so long that its conditions were set to Unknown.
func answers(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionUnknown
		}
	}
	return true
}

// onlyReadiness tells whether nothing has changed but that the endpoint is ready, or is not.
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
