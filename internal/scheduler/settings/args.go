package settings

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// The ranges of a scoring function.
const (
	maxUtilization = 100
	maxScore       = 10
	maxWeight      = 100
)

// validateArgs checks the arguments of one of upstream's plugins, with their defaults.
func validateArgs(path *field.Path, args runtime.Object) field.ErrorList {
	switch a := args.(type) {
	case *configv1.DefaultPreemptionArgs:
		return validatePreemption(path, a)
	case *configv1.InterPodAffinityArgs:
		if w := *a.HardPodAffinityWeight; w < 0 || w > maxWeight {
			return field.ErrorList{field.Invalid(path.Child("hardPodAffinityWeight"), w, "must be from 0 to 100")}
		}
	case *configv1.NodeAffinityArgs:
		return validateAffinity(path.Child("addedAffinity"), a.AddedAffinity)
	case *configv1.NodeResourcesBalancedAllocationArgs:
		return validateBalanced(path.Child("resources"), a.Resources)
	case *configv1.NodeResourcesFitArgs:
		return validateFit(path, a)
	case *configv1.PodTopologySpreadArgs:
		return validateSpread(path, a)
	case *configv1.VolumeBindingArgs:
		return validateVolumes(path, a)
	case *configv1.DynamicResourcesArgs:
		return validateDevices(path, a)
	}
	return nil
}

func validatePreemption(path *field.Path, a *configv1.DefaultPreemptionArgs) (errs field.ErrorList) {
	percentage, absolute := *a.MinCandidateNodesPercentage, *a.MinCandidateNodesAbsolute
	if percentage < 0 || percentage > 100 {
		errs = append(errs, field.Invalid(path.Child("minCandidateNodesPercentage"), percentage, "must be from 0 to 100"))
	}
	if absolute < 0 {
		errs = append(errs, field.Invalid(path.Child("minCandidateNodesAbsolute"), absolute, "must not be negative"))
	}
	if percentage == 0 && absolute == 0 {
		errs = append(errs, field.Invalid(path.Child("minCandidateNodesPercentage"), percentage, "must not be 0 together with minCandidateNodesAbsolute"))
	}
	return errs
}

func validateAffinity(path *field.Path, a *corev1.NodeAffinity) (errs field.ErrorList) {
	if a == nil {
		return nil
	}
	add := func(at *field.Path, err error) {
		var all utilerrors.Aggregate
		if !errors.As(err, &all) {
			if err != nil {
				errs = append(errs, field.Invalid(at, nil, err.Error()))
			}
			return
		}
		for _, one := range utilerrors.Flatten(all).Errors() {
			var known *field.Error
			if errors.As(one, &known) {
				errs = append(errs, known)
			} else {
				errs = append(errs, field.Invalid(at, nil, one.Error()))
			}
		}
	}
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		at := path.Child("requiredDuringSchedulingIgnoredDuringExecution")
		_, err := nodeaffinity.NewNodeSelector(required, field.WithPath(at))
		add(at, err)
	}
	if preferred := a.PreferredDuringSchedulingIgnoredDuringExecution; len(preferred) > 0 {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution")
		_, err := nodeaffinity.NewPreferredSchedulingTerms(preferred, field.WithPath(at))
		add(at, err)
	}
	return errs
}

func validateBalanced(path *field.Path, list []configv1.ResourceSpec) (errs field.ErrorList) {
	seen := sets.New[string]()
	for i, r := range list {
		if seen.Has(r.Name) {
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), r.Name))
		}
		seen.Insert(r.Name)
		if r.Weight != 1 {
			errs = append(errs, field.Invalid(path.Index(i).Child("weight"), r.Weight, "must be 1"))
		}
	}
	return errs
}

func validateFit(path *field.Path, a *configv1.NodeResourcesFitArgs) (errs field.ErrorList) {
	for i, name := range a.IgnoredResources {
		errs = append(errs, metavalidation.ValidateLabelName(name, path.Child("ignoredResources").Index(i))...)
	}
	for i, group := range a.IgnoredResourceGroups {
		at := path.Child("ignoredResourceGroups").Index(i)
		if strings.Contains(group, "/") {
			errs = append(errs, field.Invalid(at, group, `must be the part of the name before the "/"`))
			continue
		}
		errs = append(errs, metavalidation.ValidateLabelName(group, at)...)
	}
	s, at := a.ScoringStrategy, path.Child("scoringStrategy")
	for i, r := range s.Resources {
		if r.Weight <= 0 || r.Weight > maxWeight {
			errs = append(errs, field.Invalid(at.Child("resources").Index(i).Child("weight"), r.Weight, "must be from 1 to 100"))
		}
	}
	ratio := at.Child("requestedToCapacityRatio")
	switch s.Type {
	case configv1.RequestedToCapacityRatio:
		if s.RequestedToCapacityRatio == nil {
			return append(errs, field.Required(ratio, "the type RequestedToCapacityRatio needs its shape"))
		}
		return append(errs, validateShape(ratio.Child("shape"), s.RequestedToCapacityRatio.Shape)...)
	case configv1.LeastAllocated, configv1.MostAllocated:
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), s.Type, []configv1.ScoringStrategyType{configv1.LeastAllocated, configv1.MostAllocated, configv1.RequestedToCapacityRatio}))
	}
	if s.RequestedToCapacityRatio != nil {
		errs = append(errs, field.Forbidden(ratio, "only the type RequestedToCapacityRatio has it"))
	}
	return errs
}

func validateShape(path *field.Path, shape []configv1.UtilizationShapePoint) (errs field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(path, "at least one point is needed")}
	}
	for i, p := range shape {
		at := path.Index(i)
		if p.Utilization < 0 || p.Utilization > maxUtilization {
			errs = append(errs, field.Invalid(at.Child("utilization"), p.Utilization, "must be from 0 to 100"))
		}
		if p.Score < 0 || p.Score > maxScore {
			errs = append(errs, field.Invalid(at.Child("score"), p.Score, "must be from 0 to 10"))
		}
		if i > 0 && shape[i-1].Utilization >= p.Utilization {
			errs = append(errs, field.Invalid(at.Child("utilization"), p.Utilization, "must be greater than the one before"))
		}
	}
	return errs
}

func validateSpread(path *field.Path, a *configv1.PodTopologySpreadArgs) (errs field.ErrorList) {
	list := path.Child("defaultConstraints")
	switch a.DefaultingType {
	case configv1.ListDefaulting:
	case configv1.SystemDefaulting:
		if len(a.DefaultConstraints) > 0 {
			errs = append(errs, field.Invalid(path.Child("defaultingType"), a.DefaultingType, "must be List with defaultConstraints"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("defaultingType"), a.DefaultingType, []configv1.PodTopologySpreadConstraintsDefaulting{configv1.SystemDefaulting, configv1.ListDefaulting}))
	}
	seen := sets.New[string]()
	for i, c := range a.DefaultConstraints {
		at := list.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than 0"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "the label of nodes that makes a domain"))
		} else {
			errs = append(errs, metavalidation.ValidateLabelName(c.TopologyKey, at.Child("topologyKey"))...)
		}
		if c.WhenUnsatisfiable != corev1.DoNotSchedule && c.WhenUnsatisfiable != corev1.ScheduleAnyway {
			errs = append(errs, field.NotSupported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}))
		}
		if c.LabelSelector != nil {
			errs = append(errs, field.Forbidden(at.Child("labelSelector"), "the scheduler takes the selector from the pod's Services and workload"))
		}
		key := fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)
		if seen.Has(key) {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen.Insert(key)
	}
	return errs
}

func validateVolumes(path *field.Path, a *configv1.VolumeBindingArgs) (errs field.ErrorList) {
	if *a.BindTimeoutSeconds < 0 {
		errs = append(errs, field.Invalid(path.Child("bindTimeoutSeconds"), *a.BindTimeoutSeconds, "must not be negative"))
	}
	if a.Shape != nil {
		errs = append(errs, field.Forbidden(path.Child("shape"), "the feature gate StorageCapacityScoring is off, as in upstream by default; remove the field"))
	}
	return errs
}

func validateDevices(path *field.Path, a *configv1.DynamicResourcesArgs) (errs field.ErrorList) {
	if a.FilterTimeout.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("filterTimeout"), a.FilterTimeout.Duration.String(), "must not be negative"))
	}
	if a.BindingTimeout.Duration < time.Second {
		errs = append(errs, field.Invalid(path.Child("bindingTimeout"), a.BindingTimeout.Duration.String(), "must be at least 1s"))
	}
	return errs
}
