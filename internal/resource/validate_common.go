package resource

import (
	"math"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checks adapts a validation of one Go type to the signature in Strategy.
func checks[T runtime.Object](f func(T) field.ErrorList) func(runtime.Object) field.ErrorList {
	return func(obj runtime.Object) field.ErrorList { return f(obj.(T)) }
}

// checksBoth adapts a validation of a new and an old object of one Go type.
func checksBoth[T runtime.Object](f func(obj, old T) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	return func(obj, old runtime.Object) field.ErrorList { return f(obj.(T), old.(T)) }
}

// invalids makes an Invalid error of each message, as functions of util/validation return them.
func invalids(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

func validateLabel(value string, path *field.Path) field.ErrorList {
	return invalids(path, value, validation.IsDNS1123Label(value))
}

func validateSubdomain(value string, path *field.Path) field.ErrorList {
	return invalids(path, value, validation.IsDNS1123Subdomain(value))
}

// requiredSubdomain checks a DNS subdomain that must be present.
func requiredSubdomain(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateSubdomain(value, path)
}

func validateQualified(value string, path *field.Path) field.ErrorList {
	return invalids(path, value, validation.IsQualifiedName(value))
}

func validatePort(port int32, path *field.Path) field.ErrorList {
	return invalids(path, port, validation.IsValidPortNum(int(port)))
}

// validatePortNumOrName checks a target port: a number or a name.
func validatePortNumOrName(port intstr.IntOrString, path *field.Path) field.ErrorList {
	switch port.Type {
	case intstr.String:
		return invalids(path, port.StrVal, validation.IsValidPortName(port.StrVal))
	case intstr.Int:
		return invalids(path, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
	}
	return field.ErrorList{field.InternalError(path, errIntOrString(port.Type))}
}

type errIntOrString intstr.Type

func (e errIntOrString) Error() string { return "unknown type of int or string" }

func validateNonNegative(value int64, path *field.Path) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(value, path)
}

// validateImmutable refuses a change of a field: "field is immutable".
func validateImmutable(obj, old any, path *field.Path) field.ErrorList {
	return apivalidation.ValidateImmutableField(obj, old, path)
}

// oneOf refuses a value that is not allowed; an empty value is reported as missing.
func oneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(allowed, value):
		return field.ErrorList{field.NotSupported(path, value, allowed)}
	}
	return nil
}

// notSupportedUnless refuses a value that is not allowed, including the empty one.
func notSupportedUnless[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func validateSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)
}

// validateQuantity refuses a negative quantity.
func validateQuantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), apivalidation.IsNegativeErrorMsg)}
	}
	return nil
}

// validatePositiveQuantity refuses a quantity that is not greater than zero.
func validatePositiveQuantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than zero")}
	}
	return nil
}

// validatePositiveIntOrPercent checks that a number or percentage is not negative.
func validatePositiveIntOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	switch v.Type {
	case intstr.String:
		return invalids(path, v, validation.IsValidPercent(v.StrVal))
	case intstr.Int:
		return validateNonNegative(int64(v.IntValue()), path)
	}
	return field.ErrorList{field.InternalError(path, errIntOrString(v.Type))}
}

// validateAtMostHundredPercent refuses a percentage above 100%.
func validateAtMostHundredPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if percent, ok := percentOf(v); ok && percent > 100 {
		return field.ErrorList{field.Invalid(path, v, "must not be greater than 100%")}
	}
	return nil
}

// percentOf returns a percentage's number; ok is false if v is not a percentage.
func percentOf(v intstr.IntOrString) (percent int, ok bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) != 0 {
		return 0, false
	}
	for _, digit := range v.StrVal[:len(v.StrVal)-1] {
		if percent > math.MaxInt32 {
			break
		}
		percent = percent*10 + int(digit-'0')
	}
	return percent, true
}

func equal(a, b any) bool { return apiequality.Semantic.DeepEqual(a, b) }
