package networking

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func IngressClassStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(true)
	s.Default = strategy.On(defaultIngressClass)
	s.ValidateCreate = strategy.Checks(validateIngressClass)
	s.ValidateUpdate = strategy.ChecksBoth(validateIngressClassUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), ingressClassColumns, ingressClassRow)
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil {
		strategy.SetPointer(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

const maxControllerLength = 250

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	at := validate.SpecPath.Child("controller")
	var errs field.ErrorList
	if len(c.Spec.Controller) > maxControllerLength {
		errs = append(errs, field.TooLong(at, c.Spec.Controller, maxControllerLength))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(at, c.Spec.Controller)...)
	p := c.Spec.Parameters
	if p == nil {
		return errs
	}
	at = validate.SpecPath.Child("parameters")
	errs = append(errs, validateLocalReference(&corev1.TypedLocalObjectReference{APIGroup: p.APIGroup, Kind: p.Kind, Name: p.Name}, at)...)
	if p.Scope == nil {
		return append(errs, field.Required(at.Child("scope"), ""))
	}
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			errs = append(errs, field.Required(at.Child("namespace"), "`parameters.scope` is set to 'Namespace'"))
		} else {
			errs = append(errs, validate.Label(*p.Namespace, at.Child("namespace"))...)
		}
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(at.Child("namespace"), "`parameters.scope` is set to 'Cluster'"))
		}
	default:
		errs = append(errs, validate.NotSupportedUnless(*p.Scope, at.Child("scope"), networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace)...)
	}
	return errs
}

func validateIngressClassUpdate(c, old *networkingv1.IngressClass) field.ErrorList {
	return append(validate.Immutable(c.Spec.Controller, old.Spec.Controller, validate.SpecPath.Child("controller")), validateIngressClass(c)...)
}

var ingressClassColumns = columns.Define("Name", "Controller=Controller that is responsible for handling this class", "Parameters=A reference to a resource with additional parameters", "Age")

func ingressClassRow(c *networkingv1.IngressClass, now metav1.Time) []any {
	parameters := columns.None
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if group := validate.Deref(p.APIGroup); group != "" {
			parameters += "." + group
		}
		parameters += "/" + p.Name
	}
	return []any{c.Name, c.Spec.Controller, parameters, columns.AgeOf(c, now)}
}
