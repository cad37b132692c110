package dra

import (
	"encoding/json"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

func tooMany(n, most int, at *field.Path) field.ErrorList {
	if n > most {
		return field.ErrorList{field.TooMany(at, n, most)}
	}
	return nil
}

// limited checks each element of a list. A list that is too long gets that error only.
func limited(n, most int, at *field.Path, check func(i int, at *field.Path) field.ErrorList) field.ErrorList {
	if errs := tooMany(n, most, at); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i := range n {
		errs = append(errs, check(i, at.Index(i))...)
	}
	return errs
}

func validateSelectors(list []resourcev1.DeviceSelector, stored map[string]bool, at *field.Path) field.ErrorList {
	return limited(len(list), resourcev1.DeviceSelectorsMaxSize, at, func(i int, at *field.Path) field.ErrorList {
		at = at.Child("cel")
		switch s := list[i]; {
		case s.CEL == nil:
			return field.ErrorList{field.Required(at, "")}
		case stored[s.CEL.Expression]:
			return nil
		default:
			return validateDeviceExpression(s.CEL.Expression, at.Child("expression"))
		}
	})
}

func validateDeviceExpression(expression string, at *field.Path) field.ErrorList {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{field.TooLong(at, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	result := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{})
	switch {
	case result.Error == nil:
	case result.Error.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(at, result.Error.Detail)}
	case result.Error.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(at, expression, result.Error.Detail)}
	default:
		return field.ErrorList{field.InternalError(at, result.Error)}
	}
	if result.MaxCost > resourcev1.CELSelectorExpressionMaxCost {
		return field.ErrorList{field.Forbidden(at, "too complex, exceeds cost limit")}
	}
	return nil
}

func validateOpaque(o *resourcev1.OpaqueDeviceConfiguration, at *field.Path) field.ErrorList {
	at = at.Child("opaque")
	if o == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateDRADriver(o.Driver, at.Child("driver"))
	return append(errs, validateRawObject(o.Parameters, at.Child("parameters"))...)
}

func validateRawObject(raw runtime.RawExtension, at *field.Path) field.ErrorList {
	var object map[string]any
	switch {
	case len(raw.Raw) == 0:
		return field.ErrorList{field.Required(at, "")}
	case len(raw.Raw) > resourcev1.OpaqueParametersMaxLength:
		return field.ErrorList{field.TooLong(at, "", resourcev1.OpaqueParametersMaxLength)}
	case json.Unmarshal(raw.Raw, &object) != nil || object == nil:
		return field.ErrorList{field.Invalid(at, "<value omitted>", "must be a valid JSON object")}
	}
	return nil
}

func validateDRADriver(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(at, "", resourcev1.DriverNameMaxLength))
	}
	return append(errs, validate.Invalids(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func validateDeviceClaim(spec *resourcev1.ResourceClaimSpec, stored map[string]bool, at *field.Path) field.ErrorList {
	at = at.Child("devices")
	devices := &spec.Devices
	requests := requestNames(spec)
	seen := map[string]bool{}
	errs := limited(len(devices.Requests), resourcev1.DeviceRequestsMaxSize, at.Child("requests"), func(i int, at *field.Path) field.ErrorList {
		r := &devices.Requests[i]
		errs := validateDeviceRequest(r, stored, at)
		if seen[r.Name] {
			errs = append(errs, field.Duplicate(at, r.Name))
		}
		seen[r.Name] = true
		return errs
	})
	errs = append(errs, limited(len(devices.Constraints), resourcev1.DeviceConstraintsMaxSize, at.Child("constraints"), func(i int, at *field.Path) field.ErrorList {
		return validateDeviceConstraint(&devices.Constraints[i], requests, at)
	})...)
	return append(errs, limited(len(devices.Config), resourcev1.DeviceConfigMaxSize, at.Child("config"), func(i int, at *field.Path) field.ErrorList {
		errs := validateRequestNames(devices.Config[i].Requests, requests, at.Child("requests"))
		return append(errs, validateOpaque(devices.Config[i].Opaque, at)...)
	})...)
}

// requestNames returns the names of a claim's requests, and "request/subrequest" for subrequests.
func requestNames(spec *resourcev1.ResourceClaimSpec) map[string]bool {
	names := map[string]bool{}
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		names[r.Name] = true
		for _, s := range r.FirstAvailable {
			names[r.Name+"/"+s.Name] = true
		}
	}
	return names
}

func validateDeviceRequest(r *resourcev1.DeviceRequest, stored map[string]bool, at *field.Path) field.ErrorList {
	errs := validate.Label(r.Name, at.Child("name"))
	switch {
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(at, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		return append(errs, field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
	case r.Exactly != nil:
		e := r.Exactly
		return append(errs, deviceRequest{e.DeviceClassName, e.AllocationMode, e.Count, e.Selectors, e.Tolerations}.validate(stored, at.Child("exactly"))...)
	}
	seen := map[string]bool{}
	return append(errs, limited(len(r.FirstAvailable), resourcev1.FirstAvailableDeviceRequestMaxSize, at.Child("firstAvailable"), func(i int, at *field.Path) field.ErrorList {
		s := &r.FirstAvailable[i]
		errs := validate.Label(s.Name, at.Child("name"))
		errs = append(errs, deviceRequest{s.DeviceClassName, s.AllocationMode, s.Count, s.Selectors, s.Tolerations}.validate(stored, at)...)
		if seen[s.Name] {
			errs = append(errs, field.Duplicate(at, s.Name))
		}
		seen[s.Name] = true
		return errs
	})...)
}

// deviceRequest holds the fields that exact requests and subrequests share.
type deviceRequest struct {
	class       string
	mode        resourcev1.DeviceAllocationMode
	count       int64
	selectors   []resourcev1.DeviceSelector
	tolerations []resourcev1.DeviceToleration
}

func (r deviceRequest) validate(stored map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.class == "" {
		errs = append(errs, field.Required(at.Child("deviceClassName"), ""))
	} else {
		errs = append(errs, validate.Subdomain(r.class, at.Child("deviceClassName"))...)
	}
	errs = append(errs, validateSelectors(r.selectors, stored, at.Child("selectors"))...)
	switch r.mode {
	case resourcev1.DeviceAllocationModeAll:
		if r.count != 0 {
			errs = append(errs, field.Invalid(at.Child("count"), r.count, "must not be specified when allocationMode is 'All'"))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if r.count <= 0 {
			errs = append(errs, field.Invalid(at.Child("count"), r.count, "must be greater than zero"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("allocationMode"), r.mode, []resourcev1.DeviceAllocationMode{resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount}))
	}
	return append(errs, limited(len(r.tolerations), resourcev1.DeviceTolerationsMaxLength, at.Child("tolerations"), func(i int, at *field.Path) field.ErrorList {
		return validateDeviceToleration(&r.tolerations[i], at)
	})...)
}

func validateDeviceToleration(t *resourcev1.DeviceToleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty for operator `Exists`"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, validate.Invalids(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}))
	}
	if t.Effect != "" {
		errs = append(errs, validateDeviceEffect(t.Effect, at.Child("effect"))...)
	}
	return errs
}

func validateDeviceEffect(effect resourcev1.DeviceTaintEffect, at *field.Path) field.ErrorList {
	return validate.OneOf(effect, at, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)
}

func validateDeviceConstraint(c *resourcev1.DeviceConstraint, requests map[string]bool, at *field.Path) field.ErrorList {
	errs := validateRequestNames(c.Requests, requests, at.Child("requests"))
	switch { // the first one that is set counts
	case c.MatchAttribute != nil:
		return append(errs, validateFullName(string(*c.MatchAttribute), at.Child("matchAttribute"))...)
	case c.DistinctAttribute != nil:
		return append(errs, validateFullName(string(*c.DistinctAttribute), at.Child("distinctAttribute"))...)
	}
	// This is upstream's message, although no field is set.
	return append(errs, field.Required(at, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
}

func validateRequestNames(names []string, requests map[string]bool, at *field.Path) field.ErrorList {
	return limited(len(names), resourcev1.DeviceRequestsMaxSize, at, func(i int, at *field.Path) field.ErrorList {
		errs := validateRequestName(names[i], requests, at)
		if slices.Contains(names[:i], names[i]) {
			errs = append(errs, field.Duplicate(at, names[i]))
		}
		return errs
	})
}

func validateRequestName(name string, requests map[string]bool, at *field.Path) field.ErrorList {
	if requests[name] {
		return nil
	}
	var errs field.ErrorList
	if parts := strings.Split(name, "/"); len(parts) <= 2 {
		for _, part := range parts {
			errs = append(errs, validate.Label(part, at)...)
		}
	}
	return append(errs, field.Invalid(at, name, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"))
}

func validateFullName(name string, at *field.Path) field.ErrorList {
	errs := validateDeviceName(name, at)
	if !strings.Contains(name, "/") {
		errs = append(errs, field.Invalid(at, name, "a fully qualified name must be a domain and a name separated by a slash"))
	}
	return errs
}

// validateDeviceName checks the name of an attribute or capacity: a C identifier with an optional
// domain in front. As upstream, it accepts a name with more than one slash.
func validateDeviceName(name string, at *field.Path) field.ErrorList {
	parts := strings.Split(name, "/")
	switch len(parts) {
	case 1:
		return validateDeviceID(name, at)
	case 2:
		return append(validateDeviceDomain(parts[0], at), validateDomainID(parts[1], at)...)
	}
	return nil
}

func validateDeviceDomain(domain string, at *field.Path) field.ErrorList {
	if domain == "" {
		return field.ErrorList{field.Invalid(at, domain, "the domain must not be empty")}
	}
	var errs field.ErrorList
	if len(domain) > resourcev1.DeviceMaxDomainLength {
		errs = append(errs, field.TooLong(at, "", resourcev1.DeviceMaxDomainLength))
	}
	return append(errs, validate.Invalids(at, domain, validation.IsDNS1123Subdomain(strings.ToLower(domain)))...)
}

func validateDomainID(id string, at *field.Path) field.ErrorList {
	if id == "" {
		return field.ErrorList{field.Invalid(at, id, "the name must not be empty")}
	}
	return validateDeviceID(id, at)
}

func validateDeviceID(id string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(at, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, validate.Invalids(at, id, validation.IsCIdentifier(id))...)
}
