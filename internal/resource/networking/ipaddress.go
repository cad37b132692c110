package networking

import (
	"fmt"
	"net/netip"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func IPAddressStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.ValidateName = canonicalIP
	s.ValidateCreate = strategy.Checks(validateIPAddress)
	s.ValidateUpdate = strategy.ChecksBoth(validateIPAddressUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), ipAddressColumns, ipAddressRow)
}

// canonicalIP accepts an IPAddress's name: an address in canonical form.
func canonicalIP(name string, _ bool) []string {
	var texts []string
	for _, err := range validation.IsValidIP(nil, name) {
		texts = append(texts, err.Detail)
	}
	if len(texts) > 0 {
		return texts
	}
	if ip, err := netip.ParseAddr(name); err == nil && ip.String() != name {
		return []string{fmt.Sprintf("must be in canonical form (%q)", ip)}
	}
	return nil
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

var ipAddressColumns = columns.Define("Name", "ParentRef@spec.parentRef")

// ipAddressRow has one cell more than columns, as upstream has.
func ipAddressRow(a *networkingv1.IPAddress, now metav1.Time) []any {
	parent := columns.None
	if ref := a.Spec.ParentRef; ref != nil {
		parent = strings.ToLower(ref.Resource)
		if ref.Group != "" {
			parent += "." + ref.Group
		}
		if ref.Namespace != "" {
			parent += "/" + ref.Namespace
		}
		parent += "/" + ref.Name
	}
	return []any{a.Name, parent, columns.AgeOf(a, now)}
}
