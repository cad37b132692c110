// Package discovery holds EndpointSlice, the kind of discovery.k8s.io.
package discovery

import (
	"cmp"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func EndpointSliceStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultEndpointSlice)
	s.PrepareCreate = strategy.On(func(e *discoveryv1.EndpointSlice) { e.Generation = 1 })
	s.DropFields(func(obj, _ runtime.Object) {
		endpoints := obj.(*discoveryv1.EndpointSlice).Endpoints
		for i := range endpoints {
			endpoints[i].DeprecatedTopology = nil // only v1beta1 could set it
		}
	})
	drop := s.PrepareUpdate
	s.PrepareUpdate = strategy.OnBoth(func(e, old *discoveryv1.EndpointSlice) {
		// A change of a dropped field counts as a change too.
		changed := e.AddressType != old.AddressType || !apiequality.Semantic.DeepEqual(e.Endpoints, old.Endpoints) ||
			!apiequality.Semantic.DeepEqual(e.Ports, old.Ports) || !apiequality.Semantic.DeepEqual(e.Labels, old.Labels)
		drop(e, old)
		strategy.SetGeneration(e, old, changed)
	})
	s.Warnings = strategy.WarnsOfNew(warnEndpointSlice)
	s.ValidateCreate = strategy.Checks(validateEndpointSlice)
	s.ValidateUpdate = strategy.ChecksBoth(validateEndpointSliceUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), endpointSliceColumns, endpointSliceRow)
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		strategy.SetPointer(&s.Ports[i].Name, "")
		strategy.SetPointer(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// Limits of endpoint slices in the API reference; the server limits the number of ports.
const (
	maxSliceAddresses = 100
	maxSliceEndpoints = 1000
	maxSlicePorts     = 20000
	maxSliceTopology  = 16
	maxZoneHints      = 8
	maxNodeHints      = 8
)

func validateEndpointSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	errs := append(validateSliceType(s), validateSliceEndpoints(s)...)
	if len(s.Endpoints) > maxSliceEndpoints {
		return errs
	}
	return append(errs, validateSlicePorts(s.Ports, field.NewPath("ports"))...)
}

func validateSliceType(s *discoveryv1.EndpointSlice) field.ErrorList {
	return validate.OneOf(s.AddressType, field.NewPath("addressType"), discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
}

func validateSliceEndpoints(s *discoveryv1.EndpointSlice) field.ErrorList {
	var errs field.ErrorList
	endpoints := field.NewPath("endpoints")
	if n := len(s.Endpoints); n > maxSliceEndpoints {
		return field.ErrorList{field.TooMany(endpoints, n, maxSliceEndpoints)}
	}
	for i := range s.Endpoints {
		errs = append(errs, validateEndpoint(&s.Endpoints[i], s.AddressType, endpoints.Index(i))...)
	}
	return errs
}

func validateEndpointSliceUpdate(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := append(validateSliceType(s), validateSlicePorts(s.Ports, field.NewPath("ports"))...)
	if !validate.Equal(s.Endpoints, old.Endpoints) { // unchanged ones were checked before
		errs = append(errs, validateSliceEndpoints(s)...)
	}
	return append(errs, validate.Immutable(s.AddressType, old.AddressType, field.NewPath("addressType"))...)
}

func validateEndpoint(e *discoveryv1.Endpoint, kind discoveryv1.AddressType, at *field.Path) field.ErrorList {
	addresses := at.Child("addresses")
	var errs field.ErrorList
	switch n := len(e.Addresses); {
	case n == 0:
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	case n > maxSliceAddresses:
		errs = append(errs, field.TooMany(addresses, n, maxSliceAddresses))
	}
	for i, a := range e.Addresses {
		errs = append(errs, validateEndpointAddress(a, kind, addresses, addresses.Index(i))...)
	}
	if e.NodeName != nil {
		errs = append(errs, validate.Invalids(at.Child("nodeName"), *e.NodeName, apivalidation.NameIsDNSSubdomain(*e.NodeName, false))...)
	}
	topology := at.Child("deprecatedTopology")
	if n := len(e.DeprecatedTopology); n > maxSliceTopology {
		errs = append(errs, field.TooMany(topology, n, maxSliceTopology))
	}
	errs = append(errs, metavalidation.ValidateLabels(e.DeprecatedTopology, topology)...)
	if _, ok := e.DeprecatedTopology[corev1.LabelTopologyZone]; ok {
		errs = append(errs, field.InternalError(topology.Key(corev1.LabelTopologyZone), fmt.Errorf("reserved key was not removed in conversion")))
	}
	if e.Hostname != nil {
		errs = append(errs, validate.Label(*e.Hostname, at.Child("hostname"))...)
	}
	if h := e.Hints; h != nil {
		zones, nodes := make([]string, len(h.ForZones)), make([]string, len(h.ForNodes))
		for i := range h.ForZones {
			zones[i] = h.ForZones[i].Name
		}
		for i := range h.ForNodes {
			nodes[i] = h.ForNodes[i].Name
		}
		errs = append(errs, validateHints(zones, maxZoneHints, validation.IsValidLabelValue, at.Child("hints", "forZones"))...)
		errs = append(errs, validateHints(nodes, maxNodeHints, validation.IsDNS1123Subdomain, at.Child("hints", "forNodes"))...)
	}
	return errs
}

func validateHints(names []string, limit int, check func(string) []string, at *field.Path) field.ErrorList {
	if n := len(names); n > limit {
		return field.ErrorList{field.TooMany(at, n, limit)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, name := range names {
		path := at.Index(i).Child("name")
		if seen[name] {
			errs = append(errs, field.Duplicate(path, name))
		}
		seen[name] = true
		errs = append(errs, validate.Invalids(path, name, check(name))...)
	}
	return errs
}

func validateEndpointAddress(address string, kind discoveryv1.AddressType, list, at *field.Path) field.ErrorList {
	switch kind {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		errs := validation.IsValidIP(at, address)
		if len(errs) > 0 {
			return errs
		}
		if isV4 := net.ParseIP(address).To4() != nil; isV4 != (kind == discoveryv1.AddressTypeIPv4) {
			errs = append(errs, field.Invalid(list, address, fmt.Sprintf("must be an %s address", kind)))
		}
		return append(errs, endpointIP(address, at)...)
	case discoveryv1.AddressTypeFQDN:
		return validation.IsFullyQualifiedDomainName(at, address)
	}
	return nil
}

// endpointIP refuses addresses that do not identify one endpoint, such as loopback and link-local
// ones.
func endpointIP(address string, at *field.Path) field.ErrorList {
	ip := net.ParseIP(address)
	var errs field.ErrorList
	if ip.IsUnspecified() {
		errs = append(errs, field.Invalid(at, address, fmt.Sprintf("may not be unspecified (%v)", address)))
	}
	if ip.IsLoopback() {
		errs = append(errs, field.Invalid(at, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
	}
	if ip.IsLinkLocalUnicast() {
		errs = append(errs, field.Invalid(at, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
	}
	if ip.IsLinkLocalMulticast() {
		errs = append(errs, field.Invalid(at, address, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
	}
	return errs
}

func validateSlicePorts(ports []discoveryv1.EndpointPort, at *field.Path) field.ErrorList {
	if n := len(ports); n > maxSlicePorts {
		return field.ErrorList{field.TooMany(at, n, maxSlicePorts)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, p := range ports {
		at := at.Index(i)
		name := validate.Deref(p.Name)
		if name != "" {
			errs = append(errs, validate.Label(name, at.Child("name"))...)
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		seen[name] = true
		if p.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else {
			errs = append(errs, validate.NotSupportedUnless(*p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		}
		if p.AppProtocol != nil {
			errs = append(errs, validate.Qualified(*p.AppProtocol, at.Child("appProtocol"))...)
		}
	}
	return errs
}

func warnEndpointSlice(e *discoveryv1.EndpointSlice) []string {
	if e.AddressType == discoveryv1.AddressTypeFQDN {
		return []string{"spec.addressType: FQDN endpoints are deprecated"}
	}
	return nil
}

var endpointSliceColumns = columns.Define("Name", "AddressType@addressType", "Ports@ports", "Endpoints@endpoints", "Age")

func endpointSliceRow(s *discoveryv1.EndpointSlice, now metav1.Time) []any {
	var ports, addresses []string
	for _, p := range s.Ports {
		port := validate.Deref(p.Name)
		if p.Port != nil {
			port = strconv.Itoa(int(*p.Port))
		}
		ports = append(ports, port)
	}
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return []any{s.Name, string(s.AddressType), cmp.Or(columns.FirstFew(ports, 3, columns.Unset), columns.Unset), columns.FirstFew(addresses, 3, columns.Unset), columns.AgeOf(s, now)}
}
