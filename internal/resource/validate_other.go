package resource

import (
	"fmt"
	"net"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

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

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	spec := &l.Spec
	var errs field.ErrorList
	if n := spec.LeaseDurationSeconds; n != nil && *n <= 0 {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("leaseDurationSeconds"), *n, "must be greater than 0"))
	}
	if n := spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	if s := spec.Strategy; s != nil {
		errs = append(errs, validateLeaseStrategy(*s, validate.SpecPath.Child("strategy"))...)
	}
	if p := spec.PreferredHolder; p != nil && *p != "" && validate.Deref(spec.Strategy) == "" {
		errs = append(errs, field.Forbidden(validate.SpecPath.Child("preferredHolder"), "may only be specified when `strategy` is defined"))
	}
	return errs
}

func validateLeaseUpdate(l, _ *coordinationv1.Lease) field.ErrorList { return validateLease(l) }

// validateLeaseStrategy accepts the built-in strategy, and custom ones with a domain prefix.
func validateLeaseStrategy(s coordinationv1.CoordinatedLeaseStrategy, at *field.Path) field.ErrorList {
	parts := strings.Split(string(s), "/")
	switch len(parts) {
	case 1:
		return validate.NotSupportedUnless(s, at, coordinationv1.OldestEmulationVersion)
	case 2:
		errs := validate.Subdomain(parts[0], at)
		return append(errs, validate.Invalids(at, parts[1], validation.IsQualifiedName(parts[1]))...)
	}
	return field.ErrorList{field.Invalid(at, s, "must be a fully qualified domain and path of the form 'example.com/CustomStrategy'")}
}

const (
	highestUserPriority  = int32(1000000000)
	systemPriorityPrefix = "system-"
)

// systemPriorities are the classes that the server creates itself.
var systemPriorities = map[string]int32{
	"system-node-critical":    2*highestUserPriority + 1000,
	"system-cluster-critical": 2 * highestUserPriority,
}

func validatePriorityClass(c *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(c.Name, systemPriorityPrefix) {
		if why := notSystemClass(c); why != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPriorityPrefix+"' prefix are reserved for system use only. error: "+why))
		}
	} else if c.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority)))
	}
	if p := c.PreemptionPolicy; p != nil {
		errs = append(errs, validate.OneOf(*p, field.NewPath("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	return errs
}

func notSystemClass(c *schedulingv1.PriorityClass) string {
	value, ok := systemPriorities[c.Name]
	switch {
	case !ok:
		return fmt.Sprintf("%v is not a known system priority class", c.Name)
	case c.Value != value:
		return fmt.Sprintf("value of %v PriorityClass must be %v", c.Name, value)
	case c.GlobalDefault:
		return fmt.Sprintf("globalDefault of %v PriorityClass must be %v", c.Name, false)
	}
	return ""
}

func validatePriorityClassUpdate(c, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	// Existing pods already have the value.
	if c.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, validate.Immutable(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	at := field.NewPath("handler")
	var errs field.ErrorList
	if c.Handler == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validate.Label(c.Handler, at)...)
	}
	if c.Overhead != nil {
		for name, q := range c.Overhead.PodFixed {
			at := field.NewPath("overhead", "limits").Key(string(name))
			errs = append(errs, validate.ContainerResourceName(name, at)...)
			errs = append(errs, validate.ResourceValue(name, q, at)...)
		}
	}
	if s := c.Scheduling; s != nil {
		at := field.NewPath("scheduling")
		errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, validateClassTolerations(s.Tolerations, at.Child("tolerations"))...)
	}
	return errs
}

// validateClassTolerations checks tolerations that are added to pods; they must be unique.
func validateClassTolerations(tolerations []corev1.Toleration, at *field.Path) field.ErrorList {
	errs := ValidateTolerations(tolerations, at)
	type whole struct {
		toleration corev1.Toleration // without its seconds
		seconds    int64
		ends       bool
	}
	seen := sets.Set[whole]{}
	for i, t := range tolerations {
		w := whole{t, validate.Deref(t.TolerationSeconds), t.TolerationSeconds != nil}
		w.toleration.TolerationSeconds = nil
		if seen.Has(w) {
			errs = append(errs, field.Duplicate(at.Index(i), t))
		}
		seen.Insert(w)
	}
	return errs
}

func validateRuntimeClassUpdate(c, old *nodev1.RuntimeClass) field.ErrorList {
	errs := validateRuntimeClass(c)
	return append(errs, validate.Immutable(c.Handler, old.Handler, field.NewPath("handler"))...)
}
