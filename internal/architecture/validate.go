package architecture

import (
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns what is wrong with a component by itself, beyond what its schema can say. The
// schema has no rules in CEL: they could not name the nearest right name, and each start of a
// cluster would compile them.
func (c *Component) Validate() (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if s := &c.Spec.Selector; len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Required(spec.Child("selector"), "it must not be empty, since it then selects all pods; set matchLabels or matchExpressions"))
	} else if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		errs = append(errs, field.Invalid(spec.Child("selector"), "", err.Error()))
	}
	var offers []string
	for _, o := range c.Spec.Offers {
		offers = append(offers, o.Name)
	}
	for i, name := range c.Spec.Exposed {
		if !slices.Contains(offers, name) {
			errs = append(errs, field.Invalid(spec.Child("exposed").Index(i), name, "it must be the name of one of spec.offers: "+allowed(name, offers)))
		}
	}
	for i, o := range c.Spec.RequiresOutside {
		at := spec.Child("requiresOutside").Index(i)
		if (o.CIDR != "") == (o.Host != "") {
			errs = append(errs, field.Invalid(at, o.Name, "exactly one of cidr and host must be set"))
		}
		if _, err := netip.ParsePrefix(o.CIDR); o.CIDR != "" && err != nil {
			errs = append(errs, field.Invalid(at.Child("cidr"), o.CIDR, "it must be a range of addresses, such as 203.0.113.0/24"))
		}
	}
	for i, d := range c.Spec.Data {
		if count(d.Claim, d.ConfigMap, d.Secret) != 1 {
			errs = append(errs, field.Invalid(spec.Child("data").Index(i), "", "exactly one of claim, configMap and secret must be set"))
		}
	}
	return errs
}

// Validate returns what is wrong with a System by itself, beyond what its schema can say.
func (s *System) Validate() (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if len(s.Spec.Namespaces)+len(s.Spec.Components)+len(s.Spec.Systems) == 0 && s.Spec.ComponentSelector == nil {
		errs = append(errs, field.Required(spec, "a system must have members; set namespaces, componentSelector, components or systems"))
	}
	if s.Spec.ComponentSelector != nil {
		if _, err := metav1.LabelSelectorAsSelector(s.Spec.ComponentSelector); err != nil {
			errs = append(errs, field.Invalid(spec.Child("componentSelector"), "", err.Error()))
		}
	}
	for i, f := range s.Spec.Forbidden {
		at := spec.Child("forbidden").Index(i)
		for _, end := range []struct {
			name string
			side Side
		}{{"from", f.From}, {"to", f.To}} {
			if count(end.side.Component, end.side.Layer, end.side.System) != 1 {
				errs = append(errs, field.Invalid(at.Child(end.name), "", "exactly one of component, layer and system must be set"))
			}
		}
	}
	return errs
}

// count returns how many texts are not empty.
func count(texts ...string) (n int) {
	for _, t := range texts {
		if t != "" {
			n++
		}
	}
	return n
}
