package dra

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	resourcev1 "k8s.io/api/resource/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

func validateResourceSlice(s *resourcev1.ResourceSlice) field.ErrorList {
	spec := &s.Spec
	errs := validateDRADriver(spec.Driver, validate.SpecPath.Child("driver"))
	errs = append(errs, validatePool(&spec.Pool, validate.SpecPath.Child("pool"))...)
	errs = append(errs, validateSlicePlace(spec)...)
	errs = append(errs, validateCounterSets(spec.SharedCounters, validate.SpecPath.Child("sharedCounters"))...)
	if spec.SharedCounters != nil && spec.Devices != nil { // empty lists count as well
		errs = append(errs, field.Invalid(validate.SpecPath, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	at, most := validate.SpecPath.Child("devices"), resourcev1.ResourceSliceMaxDevices
	seen := map[string]bool{}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		if len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 {
			most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
	}
	return append(errs, limited(len(spec.Devices), most, at, func(i int, at *field.Path) field.ErrorList {
		d := &spec.Devices[i]
		errs := validateDevice(d, validate.Deref(spec.PerDeviceNodeSelection), at)
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(at, d.Name))
		}
		seen[d.Name] = true
		return errs
	})...)
}

func validateResourceSliceUpdate(s, old *resourcev1.ResourceSlice) field.ErrorList {
	errs := validateResourceSlice(s)
	errs = append(errs, validate.Immutable(s.Spec.Driver, old.Spec.Driver, validate.SpecPath.Child("driver"))...)
	errs = append(errs, validate.Immutable(s.Spec.Pool.Name, old.Spec.Pool.Name, validate.SpecPath.Child("pool", "name"))...)
	return append(errs, validate.Immutable(s.Spec.NodeName, old.Spec.NodeName, validate.SpecPath.Child("nodeName"))...)
}

func validatePool(p *resourcev1.ResourcePool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validatePoolName(p.Name, at.Child("name"))...)
	if p.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(at.Child("resourceSliceCount"), p.ResourceSliceCount, "must be greater than zero"))
	}
	if p.Generation < 0 {
		errs = append(errs, field.Invalid(at.Child("generation"), p.Generation, "must be greater than or equal to zero"))
	}
	return errs
}

func validatePoolName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(at, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, validate.Subdomain(part, at)...)
	}
	return errs
}

// validateSlicePlace checks that exactly one field selects the nodes that have the devices.
func validateSlicePlace(spec *resourcev1.ResourceSliceSpec) field.ErrorList {
	var errs field.ErrorList
	var set []string
	if n := spec.NodeName; n != nil {
		if *n == "" {
			errs = append(errs, field.Invalid(validate.SpecPath.Child("nodeName"), *n, "must be either unset or set to a non-empty string"))
		} else {
			set = append(set, "`nodeName`")
			errs = append(errs, validate.Subdomain(*n, validate.SpecPath.Child("nodeName"))...)
		}
	}
	if s := spec.NodeSelector; s != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, validate.NodeSelector(s, validate.SpecPath.Child("nodeSelector"))...)
		if len(s.NodeSelectorTerms) != 1 {
			errs = append(errs, field.Invalid(validate.SpecPath.Child("nodeSelector", "nodeSelectorTerms"), s.NodeSelectorTerms, "must have exactly one node selector term"))
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
			errs = append(errs, field.Invalid(validate.SpecPath.Child(flag.name), false, "must be either unset or set to true"))
		}
	}
	const wanted = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	switch len(set) {
	case 0:
		errs = append(errs, field.Required(validate.SpecPath, wanted))
	case 1:
	default:
		errs = append(errs, field.Invalid(validate.SpecPath, "{"+strings.Join(set, ", ")+"}", wanted+", but multiple fields are set"))
	}
	return errs
}

func validateCounterSets(sets []resourcev1.CounterSet, at *field.Path) field.ErrorList {
	seen := map[string]bool{}
	return limited(len(sets), resourcev1.ResourceSliceMaxCounterSets, at, func(i int, at *field.Path) field.ErrorList {
		s := &sets[i]
		errs := validateCounterSetName(s.Name, at.Child("name"))
		errs = append(errs, validateCounters(s.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, at.Child("counters"))...)
		if seen[s.Name] {
			errs = append(errs, field.Duplicate(at, s.Name))
		}
		seen[s.Name] = true
		return errs
	})
}

func validateCounterSetName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return validate.Label(name, at)
}

func validateCounters(counters map[string]resourcev1.Counter, most int, at *field.Path) field.ErrorList {
	if len(counters) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := tooMany(len(counters), most, at)
	if len(errs) > 0 {
		return errs
	}
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		errs = append(errs, validate.Label(name, at)...)
	}
	return errs
}

func validateDevice(d *resourcev1.Device, perDevice bool, at *field.Path) field.ErrorList {
	errs := validate.Label(d.Name, at.Child("name"))
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		errs = append(errs, validateDeviceName(string(name), at.Child("attributes"))...)
		errs = append(errs, validateAttribute(d.Attributes[name], at.Child("attributes").Key(shownKey(string(name))))...)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		c := d.Capacity[name]
		errs = append(errs, validateDeviceName(string(name), at.Child("capacity"))...)
		errs = append(errs, validateDeviceCapacity(&c, validate.Deref(d.AllowMultipleAllocations), at.Child("capacity").Key(shownKey(string(name))))...)
	}
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(at, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	errs = append(errs, limited(len(d.Taints), resourcev1.DeviceTaintsMaxLength, at.Child("taints"), func(i int, at *field.Path) field.ErrorList {
		t := &d.Taints[i]
		errs := metavalidation.ValidateLabelName(t.Key, at.Child("key"))
		errs = append(errs, validate.Invalids(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		return append(errs, validateDeviceEffect(t.Effect, at.Child("effect"))...)
	})...)
	consumed := map[string]bool{}
	errs = append(errs, limited(len(d.ConsumesCounters), resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, at.Child("consumesCounters"), func(i int, at *field.Path) field.ErrorList {
		c := &d.ConsumesCounters[i]
		errs := validateCounterSetName(c.CounterSet, at.Child("counterSet"))
		errs = append(errs, validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, at.Child("counters"))...)
		if consumed[c.CounterSet] {
			errs = append(errs, field.Duplicate(at, c.CounterSet))
		}
		consumed[c.CounterSet] = true
		return errs
	})...)
	errs = append(errs, validateDevicePlace(d, perDevice, at)...)
	return append(errs, validateBindingConditions(d.BindingConditions, d.BindingFailureConditions, at)...)
}

// validateDevicePlace checks that exactly one field of the device selects its nodes, if the slice
// leaves that to each device.
func validateDevicePlace(d *resourcev1.Device, perDevice bool, at *field.Path) field.ErrorList {
	if !perDevice {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			return field.ErrorList{field.Invalid(at, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
		}
		return nil
	}
	var errs field.ErrorList
	var set []string
	if n := d.NodeName; n != nil {
		if *n == "" {
			errs = append(errs, field.Invalid(at.Child("nodeName"), *n, "must not be empty"))
		} else {
			set = append(set, "`nodeName`")
			errs = append(errs, validate.Subdomain(*n, at.Child("nodeName"))...)
		}
	}
	if s := d.NodeSelector; s != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, validate.NodeSelector(s, at.Child("nodeSelector"))...)
	}
	if all := d.AllNodes; all != nil {
		if *all {
			set = append(set, "`allNodes`")
		} else {
			errs = append(errs, field.Invalid(at.Child("allNodes"), false, "must be either unset or set to true"))
		}
	}
	const wanted = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	switch len(set) {
	case 0:
		errs = append(errs, field.Required(at, wanted))
	case 1:
	default:
		errs = append(errs, field.Invalid(at, "{"+strings.Join(set, ", ")+"}", wanted))
	}
	return errs
}

// validateBindingConditions checks the conditions that a device waits for and those that end its
// wait: unique, and either both lists or none.
func validateBindingConditions(wanted, failures []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	waitedFor := sets.New(wanted...)
	for _, list := range []struct {
		name  string
		types []string
		most  int
	}{
		{"bindingConditions", wanted, resourcev1.BindingConditionsMaxSize}, {"bindingFailureConditions", failures, resourcev1.BindingFailureConditionsMaxSize},
	} {
		at := at.Child(list.name)
		errs = append(errs, tooMany(len(list.types), list.most, at)...)
		seen := sets.Set[string]{}
		for i, t := range list.types {
			if seen.Has(t) {
				errs = append(errs, field.Duplicate(at.Index(i), t))
			} else if len(list.types) <= list.most {
				errs = append(errs, metavalidation.ValidateLabelName(t, at.Index(i))...)
			}
			seen.Insert(t)
			if list.name == "bindingFailureConditions" && waitedFor.Has(t) {
				errs = append(errs, field.Invalid(at.Index(i), t, "bindingFailureConditions must not overlap with bindingConditions"))
			}
		}
	}
	if len(wanted) > 0 && len(failures) == 0 {
		errs = append(errs, field.Invalid(at.Child("bindingFailureConditions"), nil, "bindingFailureConditions are required to use bindingConditions"))
	}
	if len(failures) > 0 && len(wanted) == 0 {
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

// shownKey returns the name of an attribute or capacity as error paths show it: a name longer than
// the longest valid one loses its middle.
func shownKey(name string) string {
	const most = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength
	if len(name) <= most {
		return name
	}
	half := (most - len("...")) / 2
	return name[:most-len("...")-half] + "..." + name[len(name)-half:]
}
