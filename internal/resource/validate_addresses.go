package resource

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Addresses and ranges in an ambiguous form, such as 010.0.0.1, are refused (KEP-4858). Updates may
// keep one that the same field had before.

// stored holds the addresses or ranges that a field had before an update; nil for a new object. The
// set is built once, when a new value is refused for the first time, because objects have very
// many.
type stored struct {
	values iter.Seq[string]
	set    sets.Set[string]
}

func storedIn(values iter.Seq[string]) *stored { return &stored{values: values} }

func (s *stored) has(value string) bool {
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

func validateStoredIP(ip string, before *stored, at *field.Path) field.ErrorList {
	errs := validation.IsValidIPForLegacyField(at, ip, true, nil)
	if len(errs) > 0 && before.has(ip) {
		return nil
	}
	return errs
}

func validateStoredCIDR(cidr string, before *stored, at *field.Path) field.ErrorList {
	errs := validation.IsValidCIDRForLegacyField(at, cidr, true, nil)
	if len(errs) > 0 && before.has(cidr) {
		return nil
	}
	return errs
}

// textsOf yields one string of each item.
func textsOf[T any](items []T, text func(T) string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, item := range items {
			if !yield(text(item)) {
				return
			}
		}
	}
}

// keepsPodAddresses lets updates of a kind keep the ambiguous addresses that its pod or pod
// template had.
func keepsPodAddresses(s *Strategy) *Strategy {
	s.ValidateUpdate, s.ValidateStatus = keepingPodAddresses(s.ValidateUpdate), keepingPodAddresses(s.ValidateStatus)
	for name, sub := range s.Subresource {
		sub.Validate = keepingPodAddresses(sub.Validate)
		s.Subresource[name] = sub
	}
	return s
}

func keepingPodAddresses(check func(obj, old runtime.Object) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	if check == nil {
		return nil
	}
	return func(obj, old runtime.Object) field.ErrorList {
		spec := podSpecOf(old)
		aliases := storedIn(textsOf(spec.HostAliases, func(a corev1.HostAlias) string { return a.IP }))
		var servers *stored
		if spec.DNSConfig != nil {
			servers = storedIn(slices.Values(spec.DNSConfig.Nameservers))
		}
		return slices.DeleteFunc(check(obj, old), func(e *field.Error) bool {
			value, ok := e.BadValue.(string)
			if !ok || e.Origin != originIP {
				return false
			}
			return strings.Contains(e.Field, "spec.hostAliases[") && aliases.has(value) || strings.Contains(e.Field, "spec.dnsConfig.nameservers[") && servers.has(value)
		})
	}
}

// originIP is the origin with which the library marks errors about an address's form.
const originIP = "format=ip-sloppy"
