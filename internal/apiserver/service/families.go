package service

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/core"
)

// resolveFamilies sets ipFamilyPolicy and ipFamilies of a Service with addresses (KEP-563). The
// default is one family, the cluster's first. It refuses contradictions and families that the
// cluster lacks.
func (s *Allocator) resolveFamilies(svc, old *corev1.Service) field.ErrorList {
	if keepsPreference(svc, old) {
		return nil
	}
	defaultFamilyPolicy(svc, old)
	if errs := core.ValidateServiceAddresses(svc, old); len(errs) > 0 {
		return errs
	}
	errs := resolveSecondFamily(svc, old)
	cluster := s.families()
	errs = append(errs, familiesOfAddresses(&svc.Spec, cluster)...)
	if len(errs) > 0 {
		return errs
	}
	spec, anywhere := &svc.Spec, selectorless(svc)
	if !anywhere {
		if errs := unconfiguredFamilies(spec, cluster); len(errs) > 0 {
			return errs
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{cluster[0]}
	}
	if *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack && len(spec.IPFamilies) == 1 && (len(cluster) == 2 || anywhere) {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}

// selectorless reports a headless Service without selector. No controller here looks for its
// endpoints, and they may be of families that the cluster lacks.
func selectorless(svc *corev1.Service) bool {
	return svc.Spec.ClusterIP == corev1.ClusterIPNone && len(svc.Spec.Selector) == 0
}

// keepsPreference reports whether a Service with PreferDualStack keeps its families: it does until
// its type, addresses or families are changed. A family that the cluster has gained or lost does
// not change it.
func keepsPreference(svc, old *corev1.Service) bool {
	if old == nil || svc.Spec.IPFamilyPolicy == nil || *svc.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyPreferDualStack || old.Spec.Type != svc.Spec.Type {
		return false
	}
	if p := old.Spec.IPFamilyPolicy; p != nil && *p != corev1.IPFamilyPolicyPreferDualStack {
		return false
	}
	return slices.Equal(svc.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(svc.Spec.IPFamilies, old.Spec.IPFamilies)
}

// defaultFamilyPolicy keeps the previous policy if none is set. The number of ipFamilies does not
// matter: two of them need an explicit policy.
func defaultFamilyPolicy(svc, old *corev1.Service) {
	if svc.Spec.IPFamilyPolicy != nil {
		return
	}
	policy := corev1.IPFamilyPolicySingleStack
	switch {
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		policy = *old.Spec.IPFamilyPolicy
	case selectorless(svc):
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	svc.Spec.IPFamilyPolicy = &policy
}

// resolveSecondFamily applies a change of policy. SingleStack releases the second address and
// family if they are unchanged, and contradicts two new ones. The other policies release none.
func resolveSecondFamily(svc, old *corev1.Service) (errs field.ErrorList) {
	spec, at := &svc.Spec, field.NewPath("spec", "ipFamilyPolicy")
	wrong := func(text string) { errs = append(errs, field.Invalid(at, *spec.IPFamilyPolicy, text)) }
	if *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		if old != nil && len(spec.ClusterIPs) > 0 && len(spec.ClusterIPs) < len(old.Spec.ClusterIPs) {
			wrong("must be 'SingleStack' to release the secondary cluster IP")
		}
		if old != nil && len(spec.IPFamilies) > 0 && len(spec.IPFamilies) < len(old.Spec.IPFamilies) {
			wrong("must be 'SingleStack' to release the secondary IP family")
		}
		return errs
	}
	if old != nil && len(spec.ClusterIPs) == 2 && slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) {
		spec.ClusterIPs = spec.ClusterIPs[:1]
	}
	if old != nil && len(spec.IPFamilies) == 2 && slices.Equal(spec.IPFamilies, old.Spec.IPFamilies) {
		spec.IPFamilies = spec.IPFamilies[:1]
	}
	if len(spec.ClusterIPs) == 2 {
		wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
	}
	if len(spec.IPFamilies) == 2 {
		wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
	}
	return errs
}

// familiesOfAddresses adds the families of addresses that are requested without.
func familiesOfAddresses(spec *corev1.ServiceSpec, cluster []corev1.IPFamily) (errs field.ErrorList) {
	for i, ip := range spec.ClusterIPs {
		addr, err := netip.ParseAddr(ip)
		if err != nil || i < len(spec.IPFamilies) { // None, or an error that validation reports
			continue
		}
		if f := familyOf(addr); slices.Contains(cluster, f) {
			spec.IPFamilies = append(spec.IPFamilies, f)
		} else {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", f)))
		}
	}
	return errs
}

func unconfiguredFamilies(spec *corev1.ServiceSpec, cluster []corev1.IPFamily) (errs field.ErrorList) {
	path := field.NewPath("spec")
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(cluster) < 2 {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), *spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, family := range spec.IPFamilies {
		if !slices.Contains(cluster, family) {
			errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// families returns the families of the cluster's Service ranges, the first one first.
func (s *Allocator) families() []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, prefix := range s.CIDRs {
		if f := familyOf(prefix.Addr()); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		out = append(out, corev1.IPv4Protocol)
	}
	return out
}
