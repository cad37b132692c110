// Package apiregistration holds APIService, the kind of apiregistration.k8s.io.
package apiregistration

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func APIServiceStrategy() *strategy.Strategy {
	s := strategy.WithStatus(false)
	s.Default = strategy.On(defaultAPIService)
	s.PrepareCreate = strategy.On(func(a *apiregistrationv1.APIService) {
		a.Status = apiregistrationv1.APIServiceStatus{}
		if a.Spec.Service == nil {
			// This server serves the group itself, so it is always available.
			a.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
				Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Local",
				Message: "Local APIServices are always available", LastTransitionTime: metav1.NewTime(a.CreationTimestamp.Time),
			}}
		}
	})
	s.ValidateName = strategy.PathSegment
	s.ValidateCreate = strategy.Checks(validateAPIService)
	s.ValidateUpdate = strategy.ChecksBoth(func(a, _ *apiregistrationv1.APIService) field.ErrorList { return validateAPIService(a) })
	s.ValidateStatus = strategy.ChecksBoth(func(a, _ *apiregistrationv1.APIService) field.ErrorList { return validateAPIServiceStatus(a) })
	s.KeepMetadataInStatus()
	s.PrepareStatus = strategy.OnBoth(func(a, old *apiregistrationv1.APIService) {
		sent := a.SelfLink // Not stored. As upstream, a dry run of this kind shows it.
		strategy.OnlyStatus(a, old, "Spec")
		a.SelfLink = sent
	})
	return strategy.Show(strategy.WithLooseFinalizers(s), apiServiceColumns, apiServiceRow)
}

func defaultAPIService(a *apiregistrationv1.APIService) {
	if a.Spec.Service != nil {
		strategy.SetPointer(&a.Spec.Service.Port, 443)
	}
}

// Limits of priorities (API reference, APIServiceSpec).
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

func validateAPIService(a *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	// The name contains version and group, so each pair is served once. The same check makes
	// generateName unusable.
	served := a.Spec.Version + "." + a.Spec.Group
	for _, n := range []struct{ field, value string }{{"generateName", a.GenerateName}, {"name", a.Name}} {
		if n.value != "" && len(path.IsValidPathSegmentName(n.value)) == 0 && n.value != served {
			errs = append(errs, field.Invalid(field.NewPath("metadata", n.field), n.value, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", served)))
		}
	}
	switch {
	case a.Spec.Group != "":
		errs = append(errs, validate.Subdomain(a.Spec.Group, spec.Child("group"))...)
	case a.Spec.Version != "v1": // the core group has an empty name and one version
		errs = append(errs, field.Required(spec.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	errs = append(errs, validate.Invalids(spec.Child("version"), a.Spec.Version, validation.IsDNS1035Label(a.Spec.Version))...)
	if p := a.Spec.GroupPriorityMinimum; p <= 0 || p > maxGroupPriority {
		errs = append(errs, field.Invalid(spec.Child("groupPriorityMinimum"), p, "must be positive and less than 20000"))
	}
	if p := a.Spec.VersionPriority; p <= 0 || p > maxVersionPriority {
		errs = append(errs, field.Invalid(spec.Child("versionPriority"), p, "must be positive and less than 1000"))
	}
	if a.Spec.Service == nil {
		if n := len(a.Spec.CABundle); n != 0 {
			errs = append(errs, field.Invalid(spec.Child("caBundle"), fmt.Sprintf("%d bytes", n), "local APIServices may not have a caBundle"))
		}
		if a.Spec.InsecureSkipTLSVerify {
			errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify"))
		}
		return errs
	}
	return append(errs, validateAPIServiceReference(&a.Spec, spec)...)
}

func validateAPIServiceReference(s *apiregistrationv1.APIServiceSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := spec.Child("service")
	if s.Service.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if s.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if port := s.Service.Port; port != nil {
		for _, text := range validation.IsValidPortNum(int(*port)) {
			errs = append(errs, field.Invalid(at.Child("port"), *port, "port is not valid: "+text))
		}
	}
	if s.InsecureSkipTLSVerify && len(s.CABundle) > 0 {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateAPIServiceStatus(a *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	conditions := field.NewPath("status", "conditions")
	for i, c := range a.Status.Conditions {
		switch c.Status {
		case apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown:
		default:
			errs = append(errs, field.NotSupported(conditions.Index(i).Child("status"), c.Status,
				[]apiregistrationv1.ConditionStatus{apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown}))
		}
	}
	return errs
}

var apiServiceColumns = columns.Define("Name", "Service=The reference to the service that hosts this API endpoint.", "Available=Whether this service is available.", "Age")

func apiServiceRow(a *apiregistrationv1.APIService, now metav1.Time) []any {
	service, available := "Local", string(apiregistrationv1.ConditionUnknown)
	if s := a.Spec.Service; s != nil {
		service = s.Namespace + "/" + s.Name
	}
	for _, c := range a.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			available = string(c.Status)
			if c.Status != apiregistrationv1.ConditionTrue {
				available = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
			}
		}
	}
	return []any{a.Name, service, available, columns.AgeOf(a, now)}
}
