package admission

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// Without this check, the nodes' rights in kube-system would let each node receive the traffic of
// the whole cluster.
func TestNodesWriteOnlyTheirPartOfClusterDNS(t *testing.T) {
	part := func(node string, change ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns-" + node, Labels: map[string]string{discoveryv1.LabelServiceName: "kube-dns"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true)},
				Hints: &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: node}}}}}}
		for _, fn := range change {
			fn(s)
		}
		return s
	}
	not := func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].Conditions.Ready, s.Endpoints[0].Conditions.Serving = new(false), new(false)
	}
	unhinted := func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hints = nil }
	forOthers := func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].Hints.ForNodes = []discoveryv1.ForNode{{Name: "n1"}, {Name: "n2"}}
	}
	zonal := func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hints.ForZones = []discoveryv1.ForZone{{Name: "z"}} }
	twice := func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].Addresses = append(s.Endpoints[0].Addresses, "10.6.6.6")
	}
	elsewhere := func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.6.6.6"} }
	another := func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "other" }
	service := func(name string, change ...func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53}}}}
		for _, fn := range change {
			fn(s)
		}
		return s
	}
	const home = `can only write a part of the service "kube-dns" that serves the node itself`
	const only = `can only set the readiness of endpoint slices of node`
	for name, c := range map[string]struct {
		a    Attributes
		want string // "" means allowed
	}{
		"its own part":                              {Attributes{Object: part("n1")}, ""},
		"its own part at another address":           {Attributes{Object: part("n1", elsewhere), OldObject: part("n1"), Operation: Update}, ""},
		"its own part, deleted":                     {Attributes{OldObject: part("n1"), Operation: Delete}, ""},
		"its own part without hints":                {Attributes{Object: part("n1", unhinted), OldObject: part("n1"), Operation: Update}, home},
		"its own part with a hint for another node": {Attributes{Object: part("n1", forOthers)}, home},
		"its own part with a hint for a zone":       {Attributes{Object: part("n1", zonal)}, home},
		"its own part with two addresses":           {Attributes{Object: part("n1", twice)}, home},
		"its own part that had no hints":            {Attributes{Object: part("n1"), OldObject: part("n1", unhinted), Operation: Update}, ""},
		"another node's part":                       {Attributes{Object: part("n2")}, `cannot create endpoint slices of node "n2"`},
		"another service's slice":                   {Attributes{Object: part("n1", another)}, `can only write endpoint slices of the service "kube-dns"`},
		"a slice that belonged to another service":  {Attributes{Object: part("n1"), OldObject: part("n1", another), Operation: Update}, `can only write endpoint slices of the service "kube-dns"`},
		"another service's slice, deleted":          {Attributes{OldObject: part("n1", another), Operation: Delete}, `can only write endpoint slices of the service "kube-dns"`},
		"a slice without endpoints":                 {Attributes{Object: part("n1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })}, `can only write endpoint slices of the service "kube-dns"`},
		"a slice named after another node":          {Attributes{Object: part("n1", func(s *discoveryv1.EndpointSlice) { s.Name = "kube-dns-n2" })}, `can only write endpoint slices of the service "kube-dns"`},
		"not ready, for a silent node":              {Attributes{Object: part("silent", not), OldObject: part("silent"), Operation: Update}, ""},
		"not ready, for a live node":                {Attributes{Object: part("n2", not), OldObject: part("n2"), Operation: Update}, only},
		"ready again, for a live node":              {Attributes{Object: part("n2"), OldObject: part("n2", not), Operation: Update}, ""},
		"another address for a silent node":         {Attributes{Object: part("silent", not, elsewhere), OldObject: part("silent"), Operation: Update}, only},
		"another node's part made its own":          {Attributes{Object: part("n1"), OldObject: part("n2"), Operation: Update}, only},
		"deleting the part of a missing node":       {Attributes{OldObject: part("gone"), Operation: Delete}, ""},
		"deleting the part of an existing node":     {Attributes{OldObject: part("silent"), Operation: Delete}, only},
		"the service":                               {Attributes{Object: service("kube-dns")}, ""},
		"another service":                           {Attributes{Object: service("evil")}, `can only create the service "kube-dns"`},
		"a service with generateName":               {Attributes{Object: service("", func(s *corev1.Service) { s.GenerateName = "kube-dns" })}, `can only create the service "kube-dns"`},
		"the service with external addresses":       {Attributes{Object: service("kube-dns", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} })}, `with a type, external addresses or a selector`},
		"the service with node ports":               {Attributes{Object: service("kube-dns", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })}, `with a type, external addresses or a selector`},
		"the service with a selector":               {Attributes{Object: service("kube-dns", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} })}, `with a type, external addresses or a selector`},
	} {
		t.Run(name, func(t *testing.T) {
			c.a.User = auth.NodePart("n1")
			if c.a.OldObject != nil {
				c.a.Name = c.a.OldObject.(*discoveryv1.EndpointSlice).Name
			}
			silent := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "silent"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
			err := run(t, c.a, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, silent, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestANodeGetsTokensForItsPartsOnly(t *testing.T) {
	self := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", UID: "u2"}}
	for name, c := range map[string]struct {
		account   string
		bound     *authenticationv1.BoundObjectReference
		audiences []string
		want      string
	}{
		"bound to the node":          {auth.NodeAccount, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1"}, nil, ""},
		"bound to another node":      {auth.NodeAccount, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "n2", UID: "u2"}, nil, "bound to another node"},
		"bound to an earlier Node":   {auth.NodeAccount, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u0"}, nil, "does not match the UID in record"},
		"without a UID":              {auth.NodeAccount, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1"}, nil, "does not match the UID in record"},
		"not bound":                  {auth.NodeAccount, nil, nil, "not bound to a pod"},
		"for another audience":       {auth.NodeAccount, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1"}, []string{"vault"}, "for the API server itself"},
		"of another account":         {"default", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1"}, nil, "not bound to a pod"},
		"bound to a Node of a group": {auth.NodeAccount, &authenticationv1.BoundObjectReference{APIVersion: "x/v1", Kind: "Node", Name: "n1", UID: "u1"}, nil, "bound to another node"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t, Attributes{
				User: auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes}}, Operation: Create, Namespace: "kube-system", Name: c.account, Subresource: "token",
				Resource: corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
				Object:   &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: c.bound, Audiences: c.audiences}},
			}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, self, other)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestATokenOfNoNodeCannotWrite(t *testing.T) {
	loose := auth.NodePart("n1")
	loose.Extra = nil
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53}}}}
	err := run(t, Attributes{User: loose, Object: s}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
	if err == nil || !strings.Contains(err.Error(), "not bound to a node") {
		t.Errorf("got %v", err)
	}
}
