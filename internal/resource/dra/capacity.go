package dra

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxCapacityChoices is the number of values that the API reference allows in a policy.
const maxCapacityChoices = 10

// validateDeviceCapacity checks a capacity and the policy for the share of it that one request may
// take (KEP-5075).
func validateDeviceCapacity(c *resourcev1.DeviceCapacity, shared bool, at *field.Path) field.ErrorList {
	at = at.Child("requestPolicy")
	switch p := c.RequestPolicy; {
	case p == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(at, "allowMultipleAllocations must be true")}
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(p.ValidValues) > 0 && p.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validValues is defined")}
	case len(p.ValidValues) > 0:
		return validateChoices(*p.Default, c.Value, p.ValidValues, at.Child("validValues"))
	case p.ValidRange != nil && p.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validRange is defined")}
	case p.ValidRange != nil:
		return validateCapacityRange(*p.Default, c.Value, p.ValidRange, at.Child("validRange"))
	}
	return nil
}

// validateChoices checks that the values are ascending, unique and not above the capacity, and
// contain the default.
func validateChoices(value, capacity resource.Quantity, choices []resource.Quantity, at *field.Path) field.ErrorList {
	errs := tooMany(len(choices), maxCapacityChoices, at)
	found := len(errs) == 0 && value.Cmp(choices[0]) == 0
	if len(errs) == 0 {
		seen := map[string]bool{}
		for i, c := range choices {
			if i > 0 && choices[i-1].Cmp(c) > 0 {
				errs = append(errs, field.Invalid(at.Index(i), c.String(), "values must be sorted in ascending order"))
			}
			if c.Cmp(capacity) > 0 {
				errs = append(errs, field.Invalid(at.Index(i), c.String(), fmt.Sprintf("option is larger than capacity value: %s", capacity.String())))
			}
			if seen[c.String()] {
				errs = append(errs, field.Duplicate(at.Index(i), c.String()))
			}
			seen[c.String()] = true
			found = found || value.Cmp(c) == 0
		}
	}
	if !found {
		errs = append(errs, field.Invalid(at, value.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

func validateCapacityRange(value, capacity resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, at *field.Path) field.ErrorList {
	if r.Min == nil {
		return field.ErrorList{field.Required(at.Child("min"), "required when validRange is defined")}
	}
	var errs field.ErrorList
	low := *r.Min
	invalid := func(name string, got resource.Quantity, format string, args ...any) {
		errs = append(errs, field.Invalid(at.Child(name), got.String(), fmt.Sprintf(format, args...)))
	}
	if value.Cmp(low) < 0 {
		invalid("min", value, "default is less than min: %s", low.String())
	}
	if low.Cmp(capacity) > 0 {
		invalid("min", low, "min is larger than capacity value: %s", capacity.String())
	}
	if high := r.Max; high != nil {
		if low.Cmp(*high) > 0 {
			invalid("max", low, "min is larger than max: %s", high.String())
		}
		if high.Cmp(capacity) > 0 {
			invalid("max", *high, "max is larger than capacity value: %s", capacity.String())
		}
		if value.Cmp(*high) > 0 {
			invalid("max", value, "default is more than max: %s", high.String())
		}
	}
	step := r.Step
	if step == nil {
		return errs
	}
	if step.Sign() == 0 {
		// Upstream closes the connection instead.
		return append(errs, field.Invalid(at.Child("step"), step.String(), "must not be zero"))
	}
	onStep := func(q resource.Quantity) {
		if (q.Value()-low.Value())%max(step.Value(), -step.Value()) != 0 {
			invalid("step", q, "value is not a multiple of a given step (%s) from (%s)", step.String(), low.String())
		}
	}
	first := low.DeepCopy()
	if first.Add(*step); first.Cmp(capacity) > 0 {
		invalid("step", *step, "one step %s is larger than capacity value: %s", first.String(), capacity.String())
	}
	onStep(value)
	if r.Max != nil {
		onStep(*r.Max)
	}
	return errs
}
