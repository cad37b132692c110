package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ResourceQuotaStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(defaultResourceQuota)
	s.ValidateCreate = strategy.Checks(validateResourceQuota)
	s.ValidateUpdate = strategy.ChecksBoth(validateResourceQuotaUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateResourceQuotaStatus)
	s.Warnings = strategy.WarnsOfNew(warnResourceQuota)
	return strategy.Show(s, resourceQuotaColumns, resourceQuotaRow)
}

func defaultResourceQuota(q *corev1.ResourceQuota) {
	strategy.RoundResources(q.Spec.Hard)
	strategy.RoundResources(q.Status.Hard)
	strategy.RoundResources(q.Status.Used)
}

func validateResourceQuota(q *corev1.ResourceQuota) field.ErrorList {
	hard := validate.SpecPath.Child("hard")
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		errs = append(errs, validateQuotaName(name, hard.Key(string(name)))...)
		errs = append(errs, validateQuotaValue(name, q.Spec.Hard[name], hard.Key(string(name)))...)
	}
	errs = append(errs, validateQuotaScopes(q)...)
	errs = append(errs, validateQuotaSelector(q)...)
	return append(errs, validateQuotaStatusValues(q)...)
}

func validateQuotaName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := validate.Qualified(string(name), at)
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !validate.IsStandardQuota(name) {
		errs = append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"))
	}
	if !strings.Contains(string(name), "/") && !validate.IsStandardQuota(name) {
		errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
	}
	return errs
}

func validateQuotaValue(name corev1.ResourceName, value resource.Quantity, at *field.Path) field.ErrorList {
	errs := validate.ResourceValue(name, value, at)
	if strings.HasPrefix(string(name), "count/") && value.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, value, validate.ErrNotInteger))
	}
	return errs
}

var quotaScopes = []corev1.ResourceQuotaScope{
	corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
	corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass,
}

// podQuotas are the standard resources counted per pod; scopes can narrow them to some pods.
var podQuotas = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
}

// scopeFits reports whether a resource may be counted in a scope: best-effort pods have no compute
// resources to count. Resources with a domain or group in their name fit every scope.
func scopeFits(scope corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	if !validate.IsStandardQuota(name) {
		return true
	}
	switch scope {
	case corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	}
	return slices.Contains(podQuotas, name)
}

// unfitting returns a function that counts the resources that cannot be narrowed to a scope. It
// caches the count per scope, because a quota may repeat a scope often.
func unfitting(hard corev1.ResourceList) func(scope corev1.ResourceQuotaScope) int {
	counts := map[corev1.ResourceQuotaScope]int{}
	return func(scope corev1.ResourceQuotaScope) int {
		if !slices.Contains(quotaScopes, scope) {
			return 0
		}
		n, known := counts[scope]
		if !known {
			for name := range hard {
				if !scopeFits(scope, name) {
					n++
				}
			}
			counts[scope] = n
		}
		return n
	}
}

func validateQuotaScopes(q *corev1.ResourceQuota) field.ErrorList {
	at, unfit := validate.SpecPath.Child("scopes"), unfitting(q.Spec.Hard)
	var errs field.ErrorList
	for _, scope := range q.Spec.Scopes {
		if !slices.Contains(quotaScopes, scope) {
			errs = append(errs, field.Invalid(at, q.Spec.Scopes, "unsupported scope"))
			continue
		}
		for range min(unfit(scope), validate.MaxRepeated-len(errs)) {
			errs = append(errs, field.Invalid(at, q.Spec.Scopes, "unsupported scope applied to resource"))
		}
	}
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort}, {corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if slices.Contains(q.Spec.Scopes, pair[0]) && slices.Contains(q.Spec.Scopes, pair[1]) {
			errs = append(errs, field.Invalid(at, q.Spec.Scopes, "conflicting scopes"))
		}
	}
	return errs
}

func validateQuotaSelector(q *corev1.ResourceQuota) field.ErrorList {
	if q.Spec.ScopeSelector == nil {
		return nil
	}
	at, unfit := validate.SpecPath.Child("scopeSelector", "matchExpressions"), unfitting(q.Spec.Hard)
	var errs field.ErrorList
	for _, r := range q.Spec.ScopeSelector.MatchExpressions {
		if !slices.Contains(quotaScopes, r.ScopeName) {
			errs = append(errs, field.Invalid(at.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		for range min(unfit(r.ScopeName), validate.MaxRepeated-len(errs)) {
			errs = append(errs, field.Invalid(at, q.Spec.ScopeSelector, "unsupported scope applied to resource"))
		}
		valued := r.ScopeName == corev1.ResourceQuotaScopePriorityClass || r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
		if slices.Contains(quotaScopes, r.ScopeName) && !valued && r.Operator != corev1.ScopeSelectorOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
		}
		switch r.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			if len(r.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
			}
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				errs = append(errs, field.Invalid(at.Child("values"), r.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
	}
	return errs
}

func validateQuotaStatusValues(q *corev1.ResourceQuota) field.ErrorList {
	var errs field.ErrorList
	for list, values := range map[string]corev1.ResourceList{"hard": q.Status.Hard, "used": q.Status.Used} {
		at := field.NewPath("status", list)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			errs = append(errs, validateQuotaName(name, at.Key(string(name)))...)
			errs = append(errs, validateQuotaValue(name, values[name], at.Key(string(name)))...)
		}
	}
	return errs
}

func validateResourceQuotaUpdate(q, old *corev1.ResourceQuota) field.ErrorList {
	errs := validateResourceQuota(q)
	if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("scopes"), q.Spec.Scopes, "field is immutable"))
	}
	return errs
}

func validateResourceQuotaStatus(q, _ *corev1.ResourceQuota) field.ErrorList {
	var errs field.ErrorList
	if q.ResourceVersion == "" {
		errs = append(errs, field.Required(field.NewPath("resourceVersion"), ""))
	}
	return append(errs, validateQuotaStatusValues(q)...)
}

// warnResourceQuota warns of a quota that allows more requests than limits. Requests can never use
// the difference, because a container's limits are at least its requests.
func warnResourceQuota(q *corev1.ResourceQuota) (out []string) {
	for _, pair := range []struct {
		limits   corev1.ResourceName
		requests []corev1.ResourceName // the first of them that the quota bounds is compared
	}{
		{corev1.ResourceLimitsCPU, []corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceCPU}},
		{corev1.ResourceLimitsMemory, []corev1.ResourceName{corev1.ResourceRequestsMemory, corev1.ResourceMemory}},
		{corev1.ResourceLimitsEphemeralStorage, []corev1.ResourceName{corev1.ResourceRequestsEphemeralStorage}},
	} {
		limit, ok := q.Spec.Hard[pair.limits]
		if !ok {
			continue
		}
		for _, name := range pair.requests {
			request, ok := q.Spec.Hard[name]
			if !ok {
				continue
			}
			if request.Cmp(limit) > 0 {
				out = append(out, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", name, request.String(), pair.limits, limit.String()))
			}
			break
		}
	}
	return out
}

var resourceQuotaColumns = columns.Define("Name", "Request=Request represents a minimum amount of cpu/memory that a container may consume.",
	"Limit=Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.", "Age")

func resourceQuotaRow(q *corev1.ResourceQuota, now metav1.Time) []any {
	var names []string
	for name := range q.Status.Hard {
		names = append(names, string(name))
	}
	slices.Sort(names)
	var requests, limits []string
	for _, name := range names {
		used, hard := q.Status.Used[corev1.ResourceName(name)], q.Status.Hard[corev1.ResourceName(name)]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(name, "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), columns.AgeOf(q, now)}
}
