package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func LimitRangeStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.AllowCreateOnUpdate = true
	s.Default = strategy.On(defaultLimitRange)
	s.PrepareCreate = strategy.On(func(l *corev1.LimitRange) {
		if l.Name == "" && l.GenerateName == "" {
			l.Name = string(l.UID) // the only kind that needs no name
		}
	})
	s.ValidateCreate = strategy.Checks(validateLimitRange)
	s.ValidateUpdate = strategy.ChecksBoth(func(l, _ *corev1.LimitRange) field.ErrorList { return validateLimitRange(l) })
	return strategy.ShowAny(strategy.WithNameRuleOnUpdate(s), columns.Created, columns.CreatedRow)
}

func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type == corev1.LimitTypeContainer {
			fillResources(&item.Default, item.Max)
			fillResources(&item.DefaultRequest, item.Default)
			fillResources(&item.DefaultRequest, item.Min)
		}
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			strategy.RoundResources(list)
		}
	}
}

// fillResources copies each quantity whose resource is missing in list.
func fillResources(list *corev1.ResourceList, from corev1.ResourceList) {
	for name, q := range from {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q.DeepCopy()
	}
}

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
