package networking

import (
	"iter"
	"net"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func NetworkPolicyStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(true)
	s.Default = strategy.On(defaultNetworkPolicy)
	s.PrepareUpdate = strategy.OnBoth(func(p, old *networkingv1.NetworkPolicy) {
		// An empty list in place of none counts as a change.
		strategy.SetGeneration(p, old, !reflect.DeepEqual(p.Spec, old.Spec))
	})
	s.ValidateCreate = strategy.Checks(validateNetworkPolicy)
	s.ValidateUpdate = strategy.ChecksBoth(validateNetworkPolicyUpdate)
	return strategy.Show(s, networkPolicyColumns, networkPolicyRow)
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for i := range p.Spec.Ingress {
		defaultPolicyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPolicyPorts(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		strategy.SetPointer(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func validateNetworkPolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	return validateNetworkPolicyWith(p, metavalidation.LabelSelectorValidationOptions{}, nil)
}

// validateNetworkPolicyUpdate accepts invalid label values in selectors if the old policy had some.
func validateNetworkPolicyUpdate(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	selectors := []*metav1.LabelSelector{&old.Spec.PodSelector}
	var blocks []*networkingv1.IPBlock
	note := func(peers []networkingv1.NetworkPolicyPeer) {
		for i := range peers {
			selectors = append(selectors, peers[i].PodSelector, peers[i].NamespaceSelector)
			if peers[i].IPBlock != nil {
				blocks = append(blocks, peers[i].IPBlock)
			}
		}
	}
	for i := range old.Spec.Ingress {
		note(old.Spec.Ingress[i].From)
	}
	for i := range old.Spec.Egress {
		note(old.Spec.Egress[i].To)
	}
	return validateNetworkPolicyWith(p, metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: slices.ContainsFunc(selectors, validate.SelectsNoLabel)}, validate.StoredIn(rangesOf(blocks)))
}

// rangesOf yields the ranges and excepted ranges of blocks.
func rangesOf(blocks []*networkingv1.IPBlock) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, b := range blocks {
			if !yield(b.CIDR) {
				return
			}
			for _, except := range b.Except {
				if !yield(except) {
					return
				}
			}
		}
	}
}

func validateNetworkPolicyWith(p *networkingv1.NetworkPolicy, options metavalidation.LabelSelectorValidationOptions, before *validate.Stored) field.ErrorList {
	errs := metavalidation.ValidateLabelSelector(&p.Spec.PodSelector, options, validate.SpecPath.Child("podSelector"))
	for i, rule := range p.Spec.Ingress {
		at := validate.SpecPath.Child("ingress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, at.Child("ports"))...)
		errs = append(errs, validatePolicyPeers(rule.From, options, before, at.Child("from"))...)
	}
	for i, rule := range p.Spec.Egress {
		at := validate.SpecPath.Child("egress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, at.Child("ports"))...)
		errs = append(errs, validatePolicyPeers(rule.To, options, before, at.Child("to"))...)
	}
	at := validate.SpecPath.Child("policyTypes")
	if len(p.Spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(at, p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range p.Spec.PolicyTypes {
		errs = append(errs, validate.NotSupportedUnless(t, at.Index(i), networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	return errs
}

func validatePolicyPorts(ports []networkingv1.NetworkPolicyPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		at := at.Index(i)
		if p.Protocol != nil {
			errs = append(errs, validate.NotSupportedUnless(*p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		}
		switch {
		case p.Port != nil && p.Port.Type == intstr.Int:
			errs = append(errs, validate.Port(p.Port.IntVal, at.Child("port"))...)
			if p.EndPort != nil {
				if *p.EndPort < p.Port.IntVal {
					errs = append(errs, field.Invalid(at.Child("endPort"), p.Port.IntVal, "must be greater than or equal to `port`"))
				}
				errs = append(errs, validate.Port(*p.EndPort, at.Child("endPort"))...)
			}
		case p.Port != nil:
			if p.EndPort != nil {
				errs = append(errs, field.Invalid(at.Child("endPort"), *p.EndPort, "may not be specified when `port` is non-numeric"))
			}
			errs = append(errs, validate.Invalids(at.Child("port"), p.Port.StrVal, validation.IsValidPortName(p.Port.StrVal))...)
		case p.EndPort != nil:
			errs = append(errs, field.Invalid(at.Child("endPort"), *p.EndPort, "may not be specified when `port` is not specified"))
		}
	}
	return errs
}

func validatePolicyPeers(peers []networkingv1.NetworkPolicyPeer, options metavalidation.LabelSelectorValidationOptions, before *validate.Stored, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, peer := range peers {
		at := at.Index(i)
		switch {
		case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
			errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
		case peer.IPBlock == nil && peer.PodSelector == nil && peer.NamespaceSelector == nil:
			errs = append(errs, field.Required(at, "must specify a peer"))
		}
		if peer.PodSelector != nil {
			errs = append(errs, metavalidation.ValidateLabelSelector(peer.PodSelector, options, at.Child("podSelector"))...)
		}
		if peer.NamespaceSelector != nil {
			errs = append(errs, metavalidation.ValidateLabelSelector(peer.NamespaceSelector, options, at.Child("namespaceSelector"))...)
		}
		if peer.IPBlock != nil {
			errs = append(errs, validateIPBlock(peer.IPBlock, before, at.Child("ipBlock"))...)
		}
	}
	return errs
}

func validateIPBlock(b *networkingv1.IPBlock, before *validate.Stored, at *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(at.Child("cidr"), "")}
	}
	errs := validate.StoredCIDR(b.CIDR, before, at.Child("cidr"))
	_, outer, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs
	}
	for i, except := range b.Except {
		at := at.Child("except").Index(i)
		errs = append(errs, validate.StoredCIDR(except, before, at)...)
		if _, inner, err := netutils.ParseCIDRSloppy(except); err == nil && !strictlyWithin(inner, outer) {
			errs = append(errs, field.Invalid(at, except, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

// strictlyWithin reports whether inner is in outer and smaller, whatever form their texts had.
func strictlyWithin(inner, outer *net.IPNet) bool {
	if !outer.Contains(inner.IP) {
		return false
	}
	bits, family := outer.Mask.Size()
	innerBits, innerFamily := inner.Mask.Size()
	return family-bits > innerFamily-innerBits
}

var networkPolicyColumns = columns.Define("Name", "Pod-Selector@spec.podSelector", "Age")

func networkPolicyRow(p *networkingv1.NetworkPolicy, now metav1.Time) []any {
	return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), columns.AgeOf(p, now)}
}
