// Package networking holds the kinds of networking.k8s.io.
package networking

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func IngressStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Warnings = strategy.WarnsOfNew(warnIngress)
	s.ValidateCreate = strategy.Checks(validateIngressCreate)
	s.ValidateUpdate = strategy.ChecksBoth(validateIngressUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateIngressStatus)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), ingressColumns, ingressRow)
}

const ingressClassAnnotation = "kubernetes.io/ingress.class"

func validateIngressCreate(i *networkingv1.Ingress) field.ErrorList {
	errs := validateIngress(i)
	if class, ok := i.Annotations[ingressClassAnnotation]; ok && i.Spec.IngressClassName != nil && *i.Spec.IngressClassName != class {
		at := field.NewPath("annotations").Child(ingressClassAnnotation)
		errs = append(errs, field.Invalid(at, class, "must match `ingressClassName` when both are specified"))
	}
	return errs
}

func validateIngress(i *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	if len(i.Spec.Rules) == 0 && i.Spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(validate.SpecPath, i.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if i.Spec.DefaultBackend != nil {
		errs = append(errs, validateIngressBackend(i.Spec.DefaultBackend, validate.SpecPath.Child("defaultBackend"))...)
	}
	for j := range i.Spec.Rules {
		rule, at := &i.Spec.Rules[j], validate.SpecPath.Child("rules").Index(j)
		if rule.Host != "" {
			if netutils.ParseIPSloppy(rule.Host) != nil {
				errs = append(errs, field.Invalid(at.Child("host"), rule.Host, "must be a DNS name, not an IP address"))
			}
			errs = append(errs, validateIngressHost(rule.Host, at.Child("host"))...)
		}
		if rule.HTTP != nil {
			errs = append(errs, validateIngressPaths(rule.HTTP.Paths, at.Child("http", "paths"))...)
		}
	}
	for j, tls := range i.Spec.TLS {
		at := validate.SpecPath.Child("tls").Index(j)
		for k, host := range tls.Hosts {
			errs = append(errs, validateIngressHost(host, at.Child("hosts").Index(k))...)
		}
		if tls.SecretName != "" {
			errs = append(errs, validate.Subdomain(tls.SecretName, at.Child("secretName"))...)
		}
	}
	if class := i.Spec.IngressClassName; class != nil {
		errs = append(errs, validate.Subdomain(*class, validate.SpecPath.Child("ingressClassName"))...)
	}
	return errs
}

func validateIngressUpdate(i, _ *networkingv1.Ingress) field.ErrorList { return validateIngress(i) }

func validateIngressHost(host string, at *field.Path) field.ErrorList {
	if strings.Contains(host, "*") {
		return validate.Invalids(at, host, validation.IsWildcardDNS1123Subdomain(host))
	}
	return validate.Subdomain(host, at)
}

var (
	forbiddenInPath   = []string{"//", "/./", "/../", "%2f", "%2F"}
	forbiddenAtTheEnd = []string{"/..", "/."}
)

func validateIngressPaths(paths []networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	if len(paths) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for i := range paths {
		p, at := &paths[i], at.Index(i)
		if p.PathType == nil {
			errs = append(errs, field.Required(at.Child("pathType"), "pathType must be specified"))
			continue
		}
		switch *p.PathType {
		case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
			if !strings.HasPrefix(p.Path, "/") {
				errs = append(errs, field.Invalid(at.Child("path"), p.Path, validate.ErrAbsolutePath))
			}
			for _, s := range forbiddenInPath {
				if strings.Contains(p.Path, s) {
					errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("must not contain '%s'", s)))
				}
			}
			for _, s := range forbiddenAtTheEnd {
				if strings.HasSuffix(p.Path, s) {
					errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("cannot end with '%s'", s)))
				}
			}
		case networkingv1.PathTypeImplementationSpecific:
			if p.Path != "" && !strings.HasPrefix(p.Path, "/") {
				errs = append(errs, field.Invalid(at.Child("path"), p.Path, validate.ErrAbsolutePath))
			}
		default:
			errs = append(errs, validate.NotSupportedUnless(*p.PathType, at.Child("pathType"), networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)...)
		}
		errs = append(errs, validateIngressBackend(&p.Backend, at.Child("backend"))...)
	}
	return errs
}

func validateIngressBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateLocalReference(b.Resource, at.Child("resource"))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(at, "", "resource or service backend is required")}
	}
	service := at.Child("service")
	if b.Service.Name == "" {
		errs = append(errs, field.Required(service.Child("name"), ""))
	} else {
		errs = append(errs, validate.Invalids(service.Child("name"), b.Service.Name, validation.IsDNS1123Label(b.Service.Name))...)
	}
	name, number := b.Service.Port.Name, b.Service.Port.Number
	switch {
	case name != "" && number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case name != "":
		errs = append(errs, validate.Invalids(service.Child("port", "name"), name, validation.IsValidPortName(name))...)
	case number != 0:
		errs = append(errs, validate.Port(number, service.Child("port", "number"))...)
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

func validateLocalReference(r *corev1.TypedLocalObjectReference, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.APIGroup != nil {
		errs = append(errs, validate.Invalids(at.Child("apiGroup"), *r.APIGroup, validation.IsDNS1123Subdomain(*r.APIGroup))...)
	}
	for name, value := range map[string]string{"kind": r.Kind, "name": r.Name} {
		if value == "" {
			errs = append(errs, field.Required(at.Child(name), ""))
		} else {
			errs = append(errs, validate.Invalids(at.Child(name), value, path.IsValidPathSegmentName(value))...)
		}
	}
	return errs
}

func validateIngressStatus(i, old *networkingv1.Ingress) field.ErrorList {
	before := validate.StoredIn(validate.TextsOf(old.Status.LoadBalancer.Ingress, func(in networkingv1.IngressLoadBalancerIngress) string { return in.IP }))
	var errs field.ErrorList
	for j, ingress := range i.Status.LoadBalancer.Ingress {
		at := field.NewPath("status", "loadBalancer", "ingress").Index(j)
		if ingress.IP != "" {
			errs = append(errs, validate.StoredIP(ingress.IP, before, at.Child("ip"))...)
		}
		errs = append(errs, validate.IngressHostname(ingress.Hostname, at.Child("hostname"))...)
	}
	return errs
}

func warnIngress(i *networkingv1.Ingress) []string {
	if _, ok := i.Annotations[ingressClassAnnotation]; ok && i.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", ingressClassAnnotation)}
	}
	return nil
}

var ingressColumns = columns.Define("Name", "Class=The name of the IngressClass resource that should be used for additional configuration", "Hosts=Hosts that incoming requests are matched against before the ingress rule",
	"Address=Address is a list containing ingress points for the load-balancer", "Ports=Ports of TLS configurations that open", "Age")

func ingressRow(i *networkingv1.Ingress, now metav1.Time) []any {
	class := columns.None
	if i.Spec.IngressClassName != nil {
		class = *i.Spec.IngressClassName
	}
	var hosts []string
	for _, r := range i.Spec.Rules {
		if r.Host != "" {
			hosts = append(hosts, r.Host)
		}
	}
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	var addresses []string
	for _, in := range i.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			addresses = append(addresses, in.IP)
		} else if in.Hostname != "" {
			addresses = append(addresses, in.Hostname)
		}
	}
	return []any{i.Name, class, columns.FirstFew(hosts, 3, "*"), strings.Join(addresses, ","), ports, columns.AgeOf(i, now)}
}
