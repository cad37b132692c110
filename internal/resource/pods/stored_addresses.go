package pods

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

// keepsPodAddresses lets updates of a kind keep the ambiguous addresses that its pod or pod
// template had.
func keepsPodAddresses(s *strategy.Strategy) *strategy.Strategy {
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
		aliases := validate.StoredIn(validate.TextsOf(spec.HostAliases, func(a corev1.HostAlias) string { return a.IP }))
		var servers *validate.Stored
		if spec.DNSConfig != nil {
			servers = validate.StoredIn(slices.Values(spec.DNSConfig.Nameservers))
		}
		return slices.DeleteFunc(check(obj, old), func(e *field.Error) bool {
			value, ok := e.BadValue.(string)
			if !ok || e.Origin != originIP {
				return false
			}
			return strings.Contains(e.Field, "spec.hostAliases[") && aliases.Has(value) || strings.Contains(e.Field, "spec.dnsConfig.nameservers[") && servers.Has(value)
		})
	}
}

// originIP is the origin with which the library marks errors about an address's form.
const originIP = "format=ip-sloppy"
