package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

func validateLimitRange(l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.LimitType]bool{}
	for i := range l.Spec.Limits {
		item, at := &l.Spec.Limits[i], validate.SpecPath.Child("limits").Index(i)
		errs = append(errs, validateLimitType(item.Type, at.Child("type"))...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), item.Type))
		}
		seen[item.Type] = true
		for name, list := range map[string]corev1.ResourceList{"max": item.Max, "min": item.Min, "default": item.Default, "defaultRequest": item.DefaultRequest, "maxLimitRequestRatio": item.MaxLimitRequestRatio} {
			for r := range list {
				errs = append(errs, validateLimitedName(item.Type, r, at.Child(name).Key(string(r)))...)
			}
		}
		if item.Type == corev1.LimitTypePod {
			if len(item.Default) > 0 {
				errs = append(errs, field.Forbidden(at.Child("default"), "may not be specified when `type` is 'Pod'"))
			}
			if len(item.DefaultRequest) > 0 {
				errs = append(errs, field.Forbidden(at.Child("defaultRequest"), "may not be specified when `type` is 'Pod'"))
			}
		}
		if item.Type == corev1.LimitTypePersistentVolumeClaim {
			_, least := item.Min[corev1.ResourceStorage]
			_, most := item.Max[corev1.ResourceStorage]
			if !least && !most {
				errs = append(errs, field.Required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
			}
		}
		errs = append(errs, validateLimitValues(item, at)...)
	}
	return errs
}

func validateLimitType(t corev1.LimitType, at *field.Path) field.ErrorList {
	errs := validate.Qualified(string(t), at)
	switch t {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return errs
	}
	if len(errs) == 0 && !strings.Contains(string(t), "/") {
		errs = append(errs, field.Invalid(at, t, "must be a standard limit type or fully qualified"))
	}
	return errs
}

func validateLimitedName(t corev1.LimitType, name corev1.ResourceName, at *field.Path) field.ErrorList {
	if t == corev1.LimitTypePod || t == corev1.LimitTypeContainer {
		return validate.ContainerResourceName(name, at)
	}
	errs := validate.Qualified(string(name), at)
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !validate.IsStandardContainer(name) && name != corev1.ResourceStorage {
		errs = append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"))
	}
	return errs
}

// validateLimitValues checks min <= defaultRequest <= default <= max, and that the ratio fits
// between min and max.
func validateLimitValues(item *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	all := map[corev1.ResourceName]bool{}
	for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
		for name := range list {
			all[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		least, hasLeast := item.Min[name]
		most, hasMost := item.Max[name]
		limit, hasLimit := item.Default[name]
		request, hasRequest := item.DefaultRequest[name]
		ratio, hasRatio := item.MaxLimitRequestRatio[name]
		wrong := func(bad bool, list string, value resource.Quantity, format string, args ...any) {
			if bad {
				errs = append(errs, field.Invalid(at.Child(list).Key(string(name)), value.String(), fmt.Sprintf(format, args...)))
			}
		}
		wrong(hasLeast && hasMost && least.Cmp(most) > 0, "min", least, "min value %s is greater than max value %s", least.String(), most.String())
		wrong(hasRequest && hasLeast && least.Cmp(request) > 0, "defaultRequest", request, "min value %s is greater than default request value %s", least.String(), request.String())
		wrong(hasRequest && hasMost && request.Cmp(most) > 0, "defaultRequest", request, "default request value %s is greater than max value %s", request.String(), most.String())
		wrong(hasRequest && hasLimit && request.Cmp(limit) > 0, "defaultRequest", request, "default request value %s is greater than default limit value %s", request.String(), limit.String())
		wrong(hasLimit && hasLeast && least.Cmp(limit) > 0, "default", least, "min value %s is greater than default value %s", least.String(), limit.String())
		wrong(hasLimit && hasMost && limit.Cmp(most) > 0, "default", most, "default value %s is greater than max value %s", limit.String(), most.String())
		wrong(hasRatio && ratio.Cmp(resource.MustParse("1")) < 0, "maxLimitRequestRatio", ratio, "ratio %s is less than 1", ratio.String())
		if hasRatio && hasLeast && hasMost {
			count, unit := spanNumbers(least, most, ratio)
			// Infinite or not a number if min is zero; negative if min or max is.
			span := count(most) / count(least)
			wrong(count(ratio)/unit > span, "maxLimitRequestRatio", ratio, "ratio %s is greater than max/min = %f", ratio.String(), span)
		}
		wrong(hasRequest && hasLimit && !validate.MayOvercommit(name) && name != corev1.ResourceStorage && limit.Cmp(request) != 0, "defaultRequest", request,
			"default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)
	}
	return errs
}

// spanNumbers returns how to convert quantities to comparable numbers, and the value of one unit:
// thousandths, unless one of the quantities is too large for them.
func spanNumbers(list ...resource.Quantity) (count func(resource.Quantity) float64, unit float64) {
	for _, q := range list {
		if q.Value() >= resource.MaxMilliValue {
			return func(q resource.Quantity) float64 { return float64(q.Value()) }, 1
		}
	}
	return func(q resource.Quantity) float64 { return float64(q.MilliValue()) }, 1000
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
