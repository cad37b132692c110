package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	resourcev1 "k8s.io/api/resource/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateResourceSlice(s *resourcev1.ResourceSlice) field.ErrorList {
	spec := &s.Spec
	errs := validateDRADriver(spec.Driver, specPath.Child("driver"))
	errs = append(errs, validatePool(&spec.Pool, specPath.Child("pool"))...)
	errs = append(errs, validateSlicePlace(spec)...)
	errs = append(errs, validateCounterSets(spec.SharedCounters, specPath.Child("sharedCounters"))...)
	if len(spec.SharedCounters) > 0 && len(spec.Devices) > 0 {
		errs = append(errs, field.Invalid(specPath, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	at, most := specPath.Child("devices"), resourcev1.ResourceSliceMaxDevices
	seen := map[string]bool{}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		if len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 {
			most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
		errs = append(errs, validateDevice(d, deref(spec.PerDeviceNodeSelection), at.Index(i))...)
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(at.Index(i), d.Name))
		}
		seen[d.Name] = true
	}
	return append(errs, tooMany(len(spec.Devices), most, at)...)
}

func validateResourceSliceUpdate(s, old *resourcev1.ResourceSlice) field.ErrorList {
	errs := validateResourceSlice(s)
	errs = append(errs, validateImmutable(s.Spec.Driver, old.Spec.Driver, specPath.Child("driver"))...)
	errs = append(errs, validateImmutable(s.Spec.Pool.Name, old.Spec.Pool.Name, specPath.Child("pool", "name"))...)
	return append(errs, validateImmutable(s.Spec.NodeName, old.Spec.NodeName, specPath.Child("nodeName"))...)
}

func validatePool(p *resourcev1.ResourcePool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		if len(p.Name) > resourcev1.PoolNameMaxLength {
			errs = append(errs, field.TooLong(at.Child("name"), "", resourcev1.PoolNameMaxLength))
		}
		for part := range strings.SplitSeq(p.Name, "/") {
			errs = append(errs, validateSubdomain(part, at.Child("name"))...)
		}
	}
	if p.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(at.Child("resourceSliceCount"), p.ResourceSliceCount, "must be greater than zero"))
	}
	if p.Generation < 0 {
		errs = append(errs, field.Invalid(at.Child("generation"), p.Generation, "must be greater than or equal to zero"))
	}
	return errs
}

// validateSlicePlace: exactly one field says which nodes have the devices.
func validateSlicePlace(spec *resourcev1.ResourceSliceSpec) field.ErrorList {
	var errs field.ErrorList
	var set []string
	if n := spec.NodeName; n != nil {
		if *n == "" {
			errs = append(errs, field.Invalid(specPath.Child("nodeName"), *n, "must be either unset or set to a non-empty string"))
		} else {
			set = append(set, "`nodeName`")
			errs = append(errs, validateSubdomain(*n, specPath.Child("nodeName"))...)
		}
	}
	if s := spec.NodeSelector; s != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, validateNodeSelector(s, specPath.Child("nodeSelector"))...)
		if len(s.NodeSelectorTerms) != 1 {
			errs = append(errs, field.Invalid(specPath.Child("nodeSelector", "nodeSelectorTerms"), s.NodeSelectorTerms, "must have exactly one node selector term"))
		}
	}
	for _, flag := range []struct {
		name  string
		value *bool
	}{{"allNodes", spec.AllNodes}, {"perDeviceNodeSelection", spec.PerDeviceNodeSelection}} {
		switch {
		case flag.value == nil:
		case *flag.value:
			set = append(set, "`"+flag.name+"`")
		default:
			errs = append(errs, field.Invalid(specPath.Child(flag.name), false, "must be either unset or set to true"))
		}
	}
	const wanted = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	switch len(set) {
	case 0:
		errs = append(errs, field.Required(specPath, wanted))
	case 1:
	default:
		errs = append(errs, field.Invalid(specPath, "{"+strings.Join(set, ", ")+"}", wanted+", but multiple fields are set"))
	}
	return errs
}

func validateCounterSets(sets []resourcev1.CounterSet, at *field.Path) field.ErrorList {
	errs := tooMany(len(sets), resourcev1.ResourceSliceMaxCounterSets, at)
	seen := map[string]bool{}
	for i, s := range sets {
		if s.Name == "" {
			errs = append(errs, field.Required(at.Index(i).Child("name"), ""))
		} else {
			errs = append(errs, validateLabel(s.Name, at.Index(i).Child("name"))...)
		}
		errs = append(errs, validateCounters(s.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, at.Index(i).Child("counters"))...)
		if seen[s.Name] {
			errs = append(errs, field.Duplicate(at.Index(i), s.Name))
		}
		seen[s.Name] = true
	}
	return errs
}

func validateCounters(counters map[string]resourcev1.Counter, most int, at *field.Path) field.ErrorList {
	if len(counters) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := tooMany(len(counters), most, at)
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		errs = append(errs, validateLabel(name, at)...)
	}
	return errs
}

func validateDevice(d *resourcev1.Device, perDevice bool, at *field.Path) field.ErrorList {
	errs := validateLabel(d.Name, at.Child("name"))
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		key := at.Child("attributes").Key(string(name))
		errs = append(errs, validateDeviceName(string(name), key)...)
		errs = append(errs, validateAttribute(d.Attributes[name], key)...)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		errs = append(errs, validateDeviceName(string(name), at.Child("capacity").Key(string(name)))...)
	}
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(at, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	errs = append(errs, tooMany(len(d.Taints), resourcev1.DeviceTaintsMaxLength, at.Child("taints"))...)
	for i, t := range d.Taints {
		at := at.Child("taints").Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		errs = append(errs, invalids(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		errs = append(errs, validateDeviceEffect(t.Effect, at.Child("effect"))...)
	}
	errs = append(errs, tooMany(len(d.ConsumesCounters), resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, at.Child("consumesCounters"))...)
	for i, c := range d.ConsumesCounters {
		at := at.Child("consumesCounters").Index(i)
		if c.CounterSet == "" {
			errs = append(errs, field.Required(at.Child("counterSet"), ""))
		}
		errs = append(errs, validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, at.Child("counters"))...)
	}
	if !perDevice && (d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil) {
		errs = append(errs, field.Invalid(at, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"))
	}
	return append(errs, validateBindingConditions(d, at)...)
}

func validateBindingConditions(d *resourcev1.Device, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name  string
		types []string
		most  int
	}{
		{"bindingConditions", d.BindingConditions, resourcev1.BindingConditionsMaxSize}, {"bindingFailureConditions", d.BindingFailureConditions, resourcev1.BindingFailureConditionsMaxSize},
	} {
		errs = append(errs, tooMany(len(list.types), list.most, at.Child(list.name))...)
		for i, t := range list.types {
			errs = append(errs, metavalidation.ValidateLabelName(t, at.Child(list.name).Index(i))...)
		}
	}
	if len(d.BindingConditions) > 0 && len(d.BindingFailureConditions) == 0 {
		errs = append(errs, field.Invalid(at.Child("bindingFailureConditions"), nil, "bindingFailureConditions are required to use bindingConditions"))
	}
	if len(d.BindingFailureConditions) > 0 && len(d.BindingConditions) == 0 {
		errs = append(errs, field.Invalid(at.Child("bindingConditions"), nil, "bindingConditions are required to use bindingFailureConditions"))
	}
	return errs
}

func validateAttribute(a resourcev1.DeviceAttribute, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	set := 0
	if a.IntValue != nil {
		set++
	}
	if a.BoolValue != nil {
		set++
	}
	if s := a.StringValue; s != nil {
		set++
		if len(*s) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(at.Child("string"), "", resourcev1.DeviceAttributeMaxValueLength))
		}
	}
	if v := a.VersionValue; v != nil {
		set++
		if _, err := semver.Parse(*v); err != nil {
			errs = append(errs, field.Invalid(at.Child("version"), *v, "must be a string compatible with semver.org spec 2.0.0"))
		}
		if len(*v) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(at.Child("version"), "", resourcev1.DeviceAttributeMaxValueLength))
		}
	}
	switch set {
	case 0:
		errs = append(errs, field.Invalid(at, "", "exactly one value must be specified"))
	case 1:
	default:
		errs = append(errs, field.Invalid(at, a, "exactly one value must be specified"))
	}
	return errs
}
