// Package coordination holds Lease, the kind of coordination.k8s.io.
package coordination

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func LeaseStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.AllowCreateOnUpdate = true
	s.DropFields(func(obj, old runtime.Object) {
		// The feature CoordinatedLeaderElection is off.
		spec := &obj.(*coordinationv1.Lease).Spec
		if old == nil || old.(*coordinationv1.Lease).Spec.Strategy == nil {
			spec.Strategy = nil
		}
		if old == nil || old.(*coordinationv1.Lease).Spec.PreferredHolder == nil {
			spec.PreferredHolder = nil
		}
	})
	s.ValidateCreate = strategy.Checks(validateLease)
	s.ValidateUpdate = strategy.ChecksBoth(validateLeaseUpdate)
	return strategy.Show(strategy.WithLooseFinalizers(s), leaseColumns, leaseRow)
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

var leaseColumns = columns.Define("Name", "Holder@spec.holderIdentity", "Age")

func leaseRow(l *coordinationv1.Lease, now metav1.Time) []any {
	return []any{l.Name, validate.Deref(l.Spec.HolderIdentity), columns.AgeOf(l, now)}
}
