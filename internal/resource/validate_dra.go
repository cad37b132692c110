package resource

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Claims and classes of resource.k8s.io; limits are those of the API reference.

func validateDeviceClass(c *resourcev1.DeviceClass) field.ErrorList {
	errs := validateSelectors(c.Spec.Selectors, nil, specPath.Child("selectors"))
	errs = append(errs, tooMany(len(c.Spec.Config), resourcev1.DeviceConfigMaxSize, specPath.Child("config"))...)
	for i := range c.Spec.Config {
		errs = append(errs, validateOpaque(c.Spec.Config[i].Opaque, specPath.Child("config").Index(i))...)
	}
	if name := c.Spec.ExtendedResourceName; name != nil && !isExtended(corev1.ResourceName(*name)) {
		errs = append(errs, field.Invalid(specPath.Child("extendedResourceName"), *name, "must be a valid extended resource name"))
	}
	return errs
}

// validateDeviceClassUpdate checks expressions again only where they have changed: what was accepted once stays so.
func validateDeviceClassUpdate(c, old *resourcev1.DeviceClass) field.ErrorList {
	stored := map[string]bool{}
	for _, s := range old.Spec.Selectors {
		if s.CEL != nil {
			stored[s.CEL.Expression] = true
		}
	}
	again := c.DeepCopy()
	again.Spec.Selectors = nil
	return append(validateSelectors(c.Spec.Selectors, stored, specPath.Child("selectors")), validateDeviceClass(again)...)
}

func tooMany(n, most int, at *field.Path) field.ErrorList {
	if n > most {
		return field.ErrorList{field.TooMany(at, n, most)}
	}
	return nil
}

func validateSelectors(list []resourcev1.DeviceSelector, stored map[string]bool, at *field.Path) field.ErrorList {
	errs := tooMany(len(list), resourcev1.DeviceSelectorsMaxSize, at)
	for i, s := range list {
		at := at.Index(i).Child("cel")
		if s.CEL == nil {
			errs = append(errs, field.Required(at, ""))
		} else if !stored[s.CEL.Expression] {
			errs = append(errs, validateDeviceExpression(s.CEL.Expression, at.Child("expression"))...)
		}
	}
	return errs
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
	return append(errs, invalids(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func validateResourceClaim(c *resourcev1.ResourceClaim) field.ErrorList {
	return validateDeviceClaim(&c.Spec, specPath)
}

func validateResourceClaimUpdate(c, old *resourcev1.ResourceClaim) field.ErrorList {
	return validateImmutable(c.Spec, old.Spec, specPath)
}

func validateResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
	errs := validateTemplateMeta(&t.Spec.ObjectMeta, specPath.Child("metadata"))
	return append(errs, validateDeviceClaim(&t.Spec.Spec, specPath.Child("spec"))...)
}

func validateResourceClaimTemplateUpdate(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	errs := validateTemplateMeta(&t.Spec.ObjectMeta, specPath.Child("metadata"))
	return append(errs, validateImmutable(t.Spec, old.Spec, specPath)...)
}

// validateTemplateMeta: only labels and annotations are taken over into what is made from a template.
func validateTemplateMeta(m *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(m.Annotations, at.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(m.Labels, at.Child("labels"))...)
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"name", m.Name != ""}, {"generateName", m.GenerateName != ""}, {"namespace", m.Namespace != ""}, {"selfLink", m.SelfLink != ""}, {"uID", m.UID != ""},
		{"resourceVersion", m.ResourceVersion != ""}, {"generation", m.Generation != 0}, {"creationTimestamp", !m.CreationTimestamp.IsZero()},
		{"deletionTimestamp", m.DeletionTimestamp != nil}, {"deletionGracePeriodSeconds", m.DeletionGracePeriodSeconds != nil},
		{"ownerReferences", len(m.OwnerReferences) > 0}, {"finalizers", len(m.Finalizers) > 0}, {"managedFields", len(m.ManagedFields) > 0},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(at.Child(f.name), "cannot be set"))
		}
	}
	return errs
}

func validateDeviceClaim(spec *resourcev1.ResourceClaimSpec, at *field.Path) field.ErrorList {
	at = at.Child("devices")
	devices := &spec.Devices
	errs := tooMany(len(devices.Requests), resourcev1.DeviceRequestsMaxSize, at.Child("requests"))
	requests := map[string]bool{} // and "request/subrequest"
	for i := range devices.Requests {
		r := &devices.Requests[i]
		errs = append(errs, validateDeviceRequest(r, at.Child("requests").Index(i))...)
		if requests[r.Name] {
			errs = append(errs, field.Duplicate(at.Child("requests").Index(i), r.Name))
		}
		requests[r.Name] = true
		for _, s := range r.FirstAvailable {
			requests[r.Name+"/"+s.Name] = true
		}
	}
	errs = append(errs, tooMany(len(devices.Constraints), resourcev1.DeviceConstraintsMaxSize, at.Child("constraints"))...)
	for i := range devices.Constraints {
		errs = append(errs, validateDeviceConstraint(&devices.Constraints[i], requests, at.Child("constraints").Index(i))...)
	}
	errs = append(errs, tooMany(len(devices.Config), resourcev1.DeviceConfigMaxSize, at.Child("config"))...)
	for i := range devices.Config {
		errs = append(errs, validateRequestNames(devices.Config[i].Requests, requests, at.Child("config").Index(i).Child("requests"))...)
		errs = append(errs, validateOpaque(devices.Config[i].Opaque, at.Child("config").Index(i))...)
	}
	return errs
}

func validateDeviceRequest(r *resourcev1.DeviceRequest, at *field.Path) field.ErrorList {
	errs := validateLabel(r.Name, at.Child("name"))
	switch {
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(at, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		return append(errs, field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
	case r.Exactly != nil:
		e := r.Exactly
		return append(errs, deviceRequest{e.DeviceClassName, e.AllocationMode, e.Count, e.Selectors, e.Tolerations, e.Capacity}.validate(at.Child("exactly"))...)
	}
	at = at.Child("firstAvailable")
	errs = append(errs, tooMany(len(r.FirstAvailable), resourcev1.FirstAvailableDeviceRequestMaxSize, at)...)
	seen := map[string]bool{}
	for i, s := range r.FirstAvailable {
		errs = append(errs, validateLabel(s.Name, at.Index(i).Child("name"))...)
		errs = append(errs, deviceRequest{s.DeviceClassName, s.AllocationMode, s.Count, s.Selectors, s.Tolerations, s.Capacity}.validate(at.Index(i))...)
		if seen[s.Name] {
			errs = append(errs, field.Duplicate(at.Index(i), s.Name))
		}
		seen[s.Name] = true
	}
	return errs
}

// deviceRequest is what an exact request and a subrequest have in common.
type deviceRequest struct {
	class       string
	mode        resourcev1.DeviceAllocationMode
	count       int64
	selectors   []resourcev1.DeviceSelector
	tolerations []resourcev1.DeviceToleration
	capacity    *resourcev1.CapacityRequirements
}

func (r deviceRequest) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.class == "" {
		errs = append(errs, field.Required(at.Child("deviceClassName"), ""))
	} else {
		errs = append(errs, validateSubdomain(r.class, at.Child("deviceClassName"))...)
	}
	errs = append(errs, validateSelectors(r.selectors, nil, at.Child("selectors"))...)
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
	errs = append(errs, tooMany(len(r.tolerations), resourcev1.DeviceTolerationsMaxLength, at.Child("tolerations"))...)
	for i := range r.tolerations {
		errs = append(errs, validateDeviceToleration(&r.tolerations[i], at.Child("tolerations").Index(i))...)
	}
	if r.capacity != nil {
		for _, name := range slices.Sorted(maps.Keys(r.capacity.Requests)) {
			errs = append(errs, validateDeviceName(string(name), at.Child("capacity", "requests").Key(string(name)))...)
		}
	}
	return errs
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
		errs = append(errs, invalids(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		if t.Key == "" {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be `Exists` when `key` is empty"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}))
	}
	if t.Effect != "" {
		errs = append(errs, validateDeviceEffect(t.Effect, at.Child("effect"))...)
	}
	return errs
}

func validateDeviceEffect(effect resourcev1.DeviceTaintEffect, at *field.Path) field.ErrorList {
	return oneOf(effect, at, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)
}

func validateDeviceConstraint(c *resourcev1.DeviceConstraint, requests map[string]bool, at *field.Path) field.ErrorList {
	errs := validateRequestNames(c.Requests, requests, at.Child("requests"))
	if (c.MatchAttribute == nil) == (c.DistinctAttribute == nil) {
		// Upstream says the same of none.
		errs = append(errs, field.Required(at, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
	}
	if c.MatchAttribute != nil {
		errs = append(errs, validateFullName(string(*c.MatchAttribute), at.Child("matchAttribute"))...)
	}
	if c.DistinctAttribute != nil {
		errs = append(errs, validateFullName(string(*c.DistinctAttribute), at.Child("distinctAttribute"))...)
	}
	return errs
}

func validateRequestNames(names []string, requests map[string]bool, at *field.Path) field.ErrorList {
	errs := tooMany(len(names), resourcev1.DeviceRequestsMaxSize, at)
	for i, name := range names {
		if !requests[name] {
			errs = append(errs, field.Invalid(at.Index(i), name, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"))
		}
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(at.Index(i), name))
		}
	}
	return errs
}

func validateFullName(name string, at *field.Path) field.ErrorList {
	if !strings.Contains(name, "/") {
		return field.ErrorList{field.Invalid(at, name, "a fully qualified name must be a domain and a name separated by a slash")}
	}
	return validateDeviceName(name, at)
}

// validateDeviceName checks the name of an attribute or capacity: a C identifier, with a domain before it or not.
func validateDeviceName(name string, at *field.Path) field.ErrorList {
	domain, id, found := strings.Cut(name, "/")
	if !found {
		domain, id = "", name
	}
	var errs field.ErrorList
	if found && domain == "" {
		errs = append(errs, field.Required(at, "the domain must not be empty"))
	} else if found {
		if len(domain) > resourcev1.DeviceMaxDomainLength {
			errs = append(errs, field.TooLong(at, "", resourcev1.DeviceMaxDomainLength))
		}
		errs = append(errs, validateSubdomain(domain, at)...)
	}
	if id == "" {
		return append(errs, field.Required(at, "the name must not be empty"))
	}
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(at, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, invalids(at, id, validation.IsCIdentifier(id))...)
}
