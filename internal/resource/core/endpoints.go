package core

import (
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func EndpointsStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.AllowCreateOnUpdate = true
	s.Default = strategy.On(defaultEndpoints)
	s.ValidateCreate = strategy.Checks(validateEndpoints)
	s.ValidateUpdate = strategy.ChecksBoth(validateEndpointsUpdate)
	s.Warnings = endpointsWarnings
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), endpointsColumns, endpointsRow)
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			strategy.SetDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func validateEndpoints(e *corev1.Endpoints) field.ErrorList {
	return validateEndpointsUpdate(e, &corev1.Endpoints{})
}

func validateEndpointsUpdate(e, old *corev1.Endpoints) field.ErrorList {
	before := validate.StoredIn(func(yield func(string) bool) {
		for _, s := range old.Subsets {
			for a := range validate.TextsOf(slices.Concat(s.Addresses, s.NotReadyAddresses), func(a corev1.EndpointAddress) string { return a.IP }) {
				if !yield(a) {
					return
				}
			}
		}
	})
	var errs field.ErrorList
	for i := range e.Subsets {
		s, at := &e.Subsets[i], field.NewPath("subsets").Index(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for name, list := range map[string][]corev1.EndpointAddress{"addresses": s.Addresses, "notReadyAddresses": s.NotReadyAddresses} {
			for j, a := range list {
				at := at.Child(name).Index(j)
				errs = append(errs, validate.StoredIP(a.IP, before, at.Child("ip"))...)
				errs = append(errs, validate.NonSpecialIP(a.IP, at.Child("ip"))...)
				if a.Hostname != "" {
					errs = append(errs, validate.Label(a.Hostname, at.Child("hostname"))...)
				}
				if a.NodeName != nil {
					errs = append(errs, validate.Subdomain(*a.NodeName, at.Child("nodeName"))...)
				}
			}
		}
		for j, p := range s.Ports {
			at := at.Child("ports").Index(j)
			switch {
			case p.Name == "" && len(s.Ports) > 1:
				errs = append(errs, field.Required(at.Child("name"), ""))
			case p.Name != "":
				errs = append(errs, validate.Label(p.Name, at.Child("name"))...)
			}
			errs = append(errs, validate.Port(p.Port, at.Child("port"))...)
			errs = append(errs, validate.OneOf(p.Protocol, at.Child("protocol"), servicePortProtocols...)...)
			if p.AppProtocol != nil {
				errs = append(errs, validate.Qualified(*p.AppProtocol, at.Child("appProtocol"))...)
			}
		}
	}
	return errs
}

func endpointsWarnings(obj, _ runtime.Object) []string {
	var out []string
	for i, subset := range obj.(*corev1.Endpoints).Subsets {
		at := field.NewPath("subsets").Index(i)
		for j, a := range subset.Addresses {
			out = append(out, validate.WarnIP(a.IP, at.Child("addresses").Index(j).Child("ip"))...)
		}
		for j, a := range subset.NotReadyAddresses {
			out = append(out, validate.WarnIP(a.IP, at.Child("notReadyAddresses").Index(j).Child("ip"))...)
		}
	}
	return out
}

var endpointsColumns = columns.Define("Name", "Endpoints@subsets", "Age")

// endpointsRow lists the first addresses of each port in turn. The cell is empty when there are
// addresses but none is ready.
func endpointsRow(e *corev1.Endpoints, now metav1.Time) []any {
	const limit = 3
	var list []string
	for _, s := range e.Subsets {
		if len(s.Ports) == 0 {
			for _, a := range s.Addresses {
				list = append(list, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				list = append(list, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	empty := columns.None
	if len(e.Subsets) > 0 {
		empty = ""
	}
	return []any{e.Name, columns.FirstFew(list, limit, empty), columns.AgeOf(e, now)}
}
