package api

import (
	networkingv1 "k8s.io/api/networking/v1"
)

// networkingKinds are the kinds of the group networking.k8s.io.
var networkingKinds = []Kind{
	{
		Kind: networkingv1.SchemeGroupVersion.WithKind("IngressClass"), Resource: "ingressclasses", Singular: "ingressclass",
		Object: &networkingv1.IngressClass{}, Served: []string{"v1"},
		Prefix: "/registry/ingressclasses",
	},
	{
		Kind: networkingv1.SchemeGroupVersion.WithKind("Ingress"), Resource: "ingresses", Singular: "ingress",
		Object: &networkingv1.Ingress{}, Namespaced: true, ShortNames: []string{"ing"}, Served: []string{"v1"},
		Prefix: "/registry/ingress",
		Subresources: []Subresource{
			{Name: "status", Kind: networkingv1.SchemeGroupVersion.WithKind("Ingress"), Verbs: updateVerbs},
		},
	},
	{
		Kind: networkingv1.SchemeGroupVersion.WithKind("IPAddress"), Resource: "ipaddresses", Singular: "ipaddress",
		Object: &networkingv1.IPAddress{}, ShortNames: []string{"ip"}, Served: []string{"v1"},
		Prefix: "/registry/ipaddresses",
	},
	{
		Kind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), Resource: "networkpolicies", Singular: "networkpolicy",
		Object: &networkingv1.NetworkPolicy{}, Namespaced: true, ShortNames: []string{"netpol"}, Served: []string{"v1"},
		Prefix: "/registry/networkpolicies",
	},
	{
		Kind: networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), Resource: "servicecidrs", Singular: "servicecidr",
		Object: &networkingv1.ServiceCIDR{}, Served: []string{"v1"},
		Prefix: "/registry/servicecidrs",
		Subresources: []Subresource{
			{Name: "status", Kind: networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), Verbs: updateVerbs},
		},
	},
}
