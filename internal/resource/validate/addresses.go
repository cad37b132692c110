package validate

import (
	"fmt"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// Addresses and ranges in an ambiguous form, such as 010.0.0.1, are refused (KEP-4858). Updates may
// keep one that the same field had before.

// Stored holds the addresses or ranges that a field had before an update; nil for a new object. The
// set is built once, when a new value is refused for the first time, because objects have very
// many.
type Stored struct {
	values iter.Seq[string]
	set    sets.Set[string]
}

func StoredIn(values iter.Seq[string]) *Stored { return &Stored{values: values} }

func (s *Stored) Has(value string) bool {
	if s == nil {
		return false
	}
	if s.set == nil {
		s.set = sets.Set[string]{}
		for v := range s.values {
			s.set.Insert(v)
		}
	}
	return s.set.Has(value)
}

func StoredIP(ip string, before *Stored, at *field.Path) field.ErrorList {
	errs := validation.IsValidIPForLegacyField(at, ip, true, nil)
	if len(errs) > 0 && before.Has(ip) {
		return nil
	}
	return errs
}

func StoredCIDR(cidr string, before *Stored, at *field.Path) field.ErrorList {
	errs := validation.IsValidCIDRForLegacyField(at, cidr, true, nil)
	if len(errs) > 0 && before.Has(cidr) {
		return nil
	}
	return errs
}

// TextsOf yields one string of each item.
func TextsOf[T any](items []T, text func(T) string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, item := range items {
			if !yield(text(item)) {
				return
			}
		}
	}
}

// NonSpecialIP refuses addresses that are unreachable from other machines.
func NonSpecialIP(ip string, at *field.Path) field.ErrorList {
	a := netutils.ParseIPSloppy(ip)
	if a == nil {
		return field.ErrorList{field.Invalid(at, ip, "must be a valid IP address")}
	}
	var errs field.ErrorList
	refuse := func(bad bool, why string) {
		if bad {
			errs = append(errs, field.Invalid(at, ip, why))
		}
	}
	refuse(a.IsUnspecified(), fmt.Sprintf("may not be unspecified (%v)", ip))
	refuse(a.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	refuse(a.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	refuse(a.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	return errs
}

// IngressHostname checks a load balancer's hostname.
func IngressHostname(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	errs := Subdomain(name, at)
	if netutils.ParseIPSloppy(name) != nil { // an address, with leading zeros too
		errs = append(errs, field.Invalid(at, name, "must be a DNS name, not an IP address"))
	}
	return errs
}

// Warnings about core kinds other than pods: valid values that are outdated, unusual or without
// effect. The texts are upstream's, because clients know them.

// WarnIP warns of addresses in an unusual form. Validation refuses invalid addresses where it
// matters.
func WarnIP(ip string, at *field.Path) []string {
	if netutils.ParseIPSloppy(ip) == nil {
		return nil
	}
	return validation.GetWarningsForIP(at, ip)
}

func WarnCIDR(cidr string, at *field.Path) []string {
	cidr = strings.TrimSpace(cidr)
	if _, _, err := netutils.ParseCIDRSloppy(cidr); err != nil {
		return nil
	}
	return validation.GetWarningsForCIDR(at, cidr)
}
