package resource

import (
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

const ingressClassAnnotation = "kubernetes.io/ingress.class"

func validateIngressCreate(i *networkingv1.Ingress) field.ErrorList {
	errs := validateIngress(i)
	if class, ok := i.Annotations[ingressClassAnnotation]; ok && i.Spec.IngressClassName != nil && *i.Spec.IngressClassName != class {
		at := field.NewPath("annotations").Child(ingressClassAnnotation)
		errs = append(errs, field.Invalid(at, class, "must match `ingressClassName` when both are specified"))
	}
	return errs
}

func validateIngress(i *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	if len(i.Spec.Rules) == 0 && i.Spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(validate.SpecPath, i.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if i.Spec.DefaultBackend != nil {
		errs = append(errs, validateIngressBackend(i.Spec.DefaultBackend, validate.SpecPath.Child("defaultBackend"))...)
	}
	for j := range i.Spec.Rules {
		rule, at := &i.Spec.Rules[j], validate.SpecPath.Child("rules").Index(j)
		if rule.Host != "" {
			if netutils.ParseIPSloppy(rule.Host) != nil {
				errs = append(errs, field.Invalid(at.Child("host"), rule.Host, "must be a DNS name, not an IP address"))
			}
			errs = append(errs, validateIngressHost(rule.Host, at.Child("host"))...)
		}
		if rule.HTTP != nil {
			errs = append(errs, validateIngressPaths(rule.HTTP.Paths, at.Child("http", "paths"))...)
		}
	}
	for j, tls := range i.Spec.TLS {
		at := validate.SpecPath.Child("tls").Index(j)
		for k, host := range tls.Hosts {
			errs = append(errs, validateIngressHost(host, at.Child("hosts").Index(k))...)
		}
		if tls.SecretName != "" {
			errs = append(errs, validate.Subdomain(tls.SecretName, at.Child("secretName"))...)
		}
	}
	if class := i.Spec.IngressClassName; class != nil {
		errs = append(errs, validate.Subdomain(*class, validate.SpecPath.Child("ingressClassName"))...)
	}
	return errs
}

func validateIngressUpdate(i, _ *networkingv1.Ingress) field.ErrorList { return validateIngress(i) }

func validateIngressHost(host string, at *field.Path) field.ErrorList {
	if strings.Contains(host, "*") {
		return validate.Invalids(at, host, validation.IsWildcardDNS1123Subdomain(host))
	}
	return validate.Subdomain(host, at)
}

var (
	forbiddenInPath   = []string{"//", "/./", "/../", "%2f", "%2F"}
	forbiddenAtTheEnd = []string{"/..", "/."}
)

func validateIngressPaths(paths []networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	if len(paths) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for i := range paths {
		p, at := &paths[i], at.Index(i)
		if p.PathType == nil {
			errs = append(errs, field.Required(at.Child("pathType"), "pathType must be specified"))
			continue
		}
		switch *p.PathType {
		case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
			if !strings.HasPrefix(p.Path, "/") {
				errs = append(errs, field.Invalid(at.Child("path"), p.Path, validate.ErrAbsolutePath))
			}
			for _, s := range forbiddenInPath {
				if strings.Contains(p.Path, s) {
					errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("must not contain '%s'", s)))
				}
			}
			for _, s := range forbiddenAtTheEnd {
				if strings.HasSuffix(p.Path, s) {
					errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("cannot end with '%s'", s)))
				}
			}
		case networkingv1.PathTypeImplementationSpecific:
			if p.Path != "" && !strings.HasPrefix(p.Path, "/") {
				errs = append(errs, field.Invalid(at.Child("path"), p.Path, validate.ErrAbsolutePath))
			}
		default:
			errs = append(errs, validate.NotSupportedUnless(*p.PathType, at.Child("pathType"), networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)...)
		}
		errs = append(errs, validateIngressBackend(&p.Backend, at.Child("backend"))...)
	}
	return errs
}

func validateIngressBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateLocalReference(b.Resource, at.Child("resource"))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(at, "", "resource or service backend is required")}
	}
	service := at.Child("service")
	if b.Service.Name == "" {
		errs = append(errs, field.Required(service.Child("name"), ""))
	} else {
		errs = append(errs, validate.Invalids(service.Child("name"), b.Service.Name, validation.IsDNS1123Label(b.Service.Name))...)
	}
	name, number := b.Service.Port.Name, b.Service.Port.Number
	switch {
	case name != "" && number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case name != "":
		errs = append(errs, validate.Invalids(service.Child("port", "name"), name, validation.IsValidPortName(name))...)
	case number != 0:
		errs = append(errs, validate.Port(number, service.Child("port", "number"))...)
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

func validateLocalReference(r *corev1.TypedLocalObjectReference, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.APIGroup != nil {
		errs = append(errs, validate.Invalids(at.Child("apiGroup"), *r.APIGroup, validation.IsDNS1123Subdomain(*r.APIGroup))...)
	}
	for name, value := range map[string]string{"kind": r.Kind, "name": r.Name} {
		if value == "" {
			errs = append(errs, field.Required(at.Child(name), ""))
		} else {
			errs = append(errs, validate.Invalids(at.Child(name), value, path.IsValidPathSegmentName(value))...)
		}
	}
	return errs
}

func validateIngressStatus(i, old *networkingv1.Ingress) field.ErrorList {
	before := validate.StoredIn(validate.TextsOf(old.Status.LoadBalancer.Ingress, func(in networkingv1.IngressLoadBalancerIngress) string { return in.IP }))
	var errs field.ErrorList
	for j, ingress := range i.Status.LoadBalancer.Ingress {
		at := field.NewPath("status", "loadBalancer", "ingress").Index(j)
		if ingress.IP != "" {
			errs = append(errs, validate.StoredIP(ingress.IP, before, at.Child("ip"))...)
		}
		errs = append(errs, validate.IngressHostname(ingress.Hostname, at.Child("hostname"))...)
	}
	return errs
}

const maxControllerLength = 250

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	at := validate.SpecPath.Child("controller")
	var errs field.ErrorList
	if len(c.Spec.Controller) > maxControllerLength {
		errs = append(errs, field.TooLong(at, c.Spec.Controller, maxControllerLength))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(at, c.Spec.Controller)...)
	p := c.Spec.Parameters
	if p == nil {
		return errs
	}
	at = validate.SpecPath.Child("parameters")
	errs = append(errs, validateLocalReference(&corev1.TypedLocalObjectReference{APIGroup: p.APIGroup, Kind: p.Kind, Name: p.Name}, at)...)
	if p.Scope == nil {
		return append(errs, field.Required(at.Child("scope"), ""))
	}
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			errs = append(errs, field.Required(at.Child("namespace"), "`parameters.scope` is set to 'Namespace'"))
		} else {
			errs = append(errs, validate.Label(*p.Namespace, at.Child("namespace"))...)
		}
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(at.Child("namespace"), "`parameters.scope` is set to 'Cluster'"))
		}
	default:
		errs = append(errs, validate.NotSupportedUnless(*p.Scope, at.Child("scope"), networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace)...)
	}
	return errs
}

func validateIngressClassUpdate(c, old *networkingv1.IngressClass) field.ErrorList {
	return append(validate.Immutable(c.Spec.Controller, old.Spec.Controller, validate.SpecPath.Child("controller")), validateIngressClass(c)...)
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

func validateIPAddress(a *networkingv1.IPAddress) field.ErrorList {
	at, r := validate.SpecPath.Child("parentRef"), a.Spec.ParentRef
	if r == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if r.Group != "" {
		errs = append(errs, validate.Subdomain(r.Group, at.Child("group"))...)
	}
	for name, value := range map[string]string{"resource": r.Resource, "name": r.Name} {
		if value == "" {
			errs = append(errs, field.Required(at.Child(name), ""))
		} else {
			errs = append(errs, validate.Invalids(at.Child(name), value, path.IsValidPathSegmentName(value))...)
		}
	}
	if r.Namespace != "" {
		errs = append(errs, validate.Invalids(at.Child("namespace"), r.Namespace, path.IsValidPathSegmentName(r.Namespace))...)
	}
	return errs
}

func validateIPAddressUpdate(a, old *networkingv1.IPAddress) field.ErrorList {
	return append(validate.Immutable(a.Spec.ParentRef, old.Spec.ParentRef, validate.SpecPath.Child("parentRef")), validateIPAddress(a)...)
}

func isCIDR(text string) bool {
	_, err := netip.ParsePrefix(text)
	return err == nil
}

func validateServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	at, cidrs := validate.SpecPath.Child("cidrs"), c.Spec.CIDRs
	if len(cidrs) == 0 {
		return field.ErrorList{field.Required(at, "at least one CIDR required")}
	}
	if len(cidrs) > 2 {
		return field.ErrorList{field.Invalid(at, c.Spec, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	if len(cidrs) == 2 && isCIDR(cidrs[0]) && isCIDR(cidrs[1]) && strings.Contains(cidrs[0], ":") == strings.Contains(cidrs[1], ":") {
		errs = append(errs, field.Invalid(at, c.Spec, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	for i, cidr := range cidrs {
		errs = append(errs, validation.IsValidCIDR(at.Index(i), cidr)...)
	}
	return errs
}

// validateServiceCIDRUpdate allows only one change: adding a range of the other family.
func validateServiceCIDRUpdate(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	at := validate.SpecPath.Child("cidrs")
	switch {
	case len(old.Spec.CIDRs) == 0 || slices.Equal(c.Spec.CIDRs, old.Spec.CIDRs):
		return nil
	case len(old.Spec.CIDRs) == len(c.Spec.CIDRs):
		var errs field.ErrorList
		for i := range c.Spec.CIDRs {
			errs = append(errs, validate.Immutable(c.Spec.CIDRs[i], old.Spec.CIDRs[i], at.Index(i))...)
		}
		return errs
	case len(old.Spec.CIDRs) == 1 && len(c.Spec.CIDRs) == 2:
		return append(validate.Immutable(c.Spec.CIDRs[0], old.Spec.CIDRs[0], at.Index(0)), validateServiceCIDR(c)...)
	}
	return validate.Immutable(c.Spec.CIDRs, old.Spec.CIDRs, at)
}

func validateDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	return validateDisruptionBudgetWith(b, metavalidation.LabelSelectorValidationOptions{})
}

func validateDisruptionBudgetUpdate(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
	return validateDisruptionBudgetWith(b, metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: validate.SelectsNoLabel(old.Spec.Selector)})
}

func validateDisruptionBudgetWith(b *policyv1.PodDisruptionBudget, options metavalidation.LabelSelectorValidationOptions) field.ErrorList {
	var errs field.ErrorList
	s := &b.Spec
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(validate.SpecPath, *s, "minAvailable and maxUnavailable cannot be both set"))
	}
	for name, v := range map[string]*intstr.IntOrString{"minAvailable": s.MinAvailable, "maxUnavailable": s.MaxUnavailable} {
		if v != nil {
			errs = append(errs, validate.PositiveIntOrPercent(*v, validate.SpecPath.Child(name))...)
			errs = append(errs, validate.AtMostHundredPercent(*v, validate.SpecPath.Child(name))...)
		}
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(s.Selector, options, validate.SpecPath.Child("selector"))...)
	if p := s.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(errs, validate.NotSupportedUnless(*p, validate.SpecPath.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return errs
}

func validateDisruptionBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s, at := b.Status, field.NewPath("status")
	errs := metavalidation.ValidateConditions(s.Conditions, at.Child("conditions"))
	for _, c := range []struct {
		name  string
		value int32
	}{{"disruptionsAllowed", s.DisruptionsAllowed}, {"currentHealthy", s.CurrentHealthy}, {"desiredHealthy", s.DesiredHealthy}, {"expectedPods", s.ExpectedPods}} {
		errs = append(errs, validate.NonNegative(int64(c.value), at.Child(c.name))...)
	}
	return errs
}
