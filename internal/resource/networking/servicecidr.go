package networking

import (
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ServiceCIDRStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.ValidateCreate = strategy.Checks(validateServiceCIDR)
	s.ValidateUpdate = strategy.ChecksBoth(validateServiceCIDRUpdate)
	s.KeepMetadataInStatus()
	return strategy.Show(s, serviceCIDRColumns, serviceCIDRRow)
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

var serviceCIDRColumns = columns.Define("Name", "CIDRs@spec.cidrs", "Age")

func serviceCIDRRow(c *networkingv1.ServiceCIDR, now metav1.Time) []any {
	return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), columns.AgeOf(c, now)}
}
