package autoscaling

import (
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

const (
	maxStabilizationSeconds = 3600
	maxScalingPeriodSeconds = 1800
)

func validateAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	spec, at := &h.Spec, validate.SpecPath
	var errs field.ErrorList
	if n := spec.MinReplicas; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(at.Child("minReplicas"), *n, "must be greater than or equal to 1"))
	}
	switch {
	case spec.MaxReplicas == 0:
		errs = append(errs, field.Required(at.Child("maxReplicas"), "must be set and greater than 0"))
	case spec.MaxReplicas < 1:
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to 1"))
	}
	if n := spec.MinReplicas; n != nil && spec.MaxReplicas < *n {
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	errs = append(errs, validateScaleTarget(spec.ScaleTargetRef, at.Child("scaleTargetRef"))...)
	for i := range spec.Metrics {
		errs = append(errs, validateMetric(&spec.Metrics[i], at.Child("metrics").Index(i))...)
	}
	if n := spec.MinReplicas; n != nil && *n == 0 && !slices.ContainsFunc(spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}) {
		errs = append(errs, field.Forbidden(at.Child("metrics"), "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	if b := spec.Behavior; b != nil {
		errs = append(errs, validateScalingRules(b.ScaleUp, at.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateScalingRules(b.ScaleDown, at.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validateAutoscalerUpdate(h, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return validateAutoscaler(h)
}

func validateAutoscalerStatus(h, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return validate.NonNegativeCounts(field.NewPath("status"), validate.CountOf("currentReplicas", h.Status.CurrentReplicas), validate.CountOf("desiredReplicas", h.Status.DesiredReplicas))
}

func validateScaleReference(ref autoscalingv2.CrossVersionObjectReference, at *field.Path) field.ErrorList {
	errs := validate.RequiredSegment(ref.Kind, at.Child("kind"))
	errs = append(errs, validate.RequiredSegment(ref.Name, at.Child("name"))...)
	if _, err := schema.ParseGroupVersion(ref.APIVersion); err != nil {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, err.Error()))
	}
	return errs
}

// validateScaleTarget checks the target; of the core group, only ReplicationControllers scale.
func validateScaleTarget(ref autoscalingv2.CrossVersionObjectReference, at *field.Path) field.ErrorList {
	errs := validateScaleReference(ref, at)
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil && gv.Group == "" && ref.Kind != "ReplicationController" {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, "apiVersion must specify API group"))
	}
	return errs
}

func validateScalingRules(r *autoscalingv2.HPAScalingRules, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if n := r.StabilizationWindowSeconds; n != nil {
		if *n < 0 {
			errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), n, "must be greater than or equal to zero"))
		}
		if *n > maxStabilizationSeconds {
			errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), n, fmt.Sprintf("must be less than or equal to %v", maxStabilizationSeconds)))
		}
	}
	if s := r.SelectPolicy; s != nil {
		errs = append(errs, validate.NotSupportedUnless(*s, at.Child("selectPolicy"),
			autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	}
	policies := at.Child("policies")
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(policies, "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		at := policies.Index(i)
		errs = append(errs, validate.NotSupportedUnless(p.Type, at.Child("type"), autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)...)
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
		}
		if p.PeriodSeconds > maxScalingPeriodSeconds {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %v", maxScalingPeriodSeconds)))
		}
	}
	if t := r.Tolerance; t != nil && t.Sign() < 0 {
		errs = append(errs, field.Invalid(at.Child("tolerance"), t, "must be greater than or equal to 0"))
	}
	return errs
}

// validateMetric checks that the source matching the type is set, complete and the only one.
func validateMetric(m *autoscalingv2.MetricSpec, at *field.Path) field.ErrorList {
	fields := map[autoscalingv2.MetricSourceType]string{
		autoscalingv2.ObjectMetricSourceType: "object", autoscalingv2.PodsMetricSourceType: "pods", autoscalingv2.ResourceMetricSourceType: "resource",
		autoscalingv2.ContainerResourceMetricSourceType: "containerResource", autoscalingv2.ExternalMetricSourceType: "external",
	}
	var errs field.ErrorList
	if m.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric source type"))
	}
	if fields[m.Type] == "" {
		errs = append(errs, field.NotSupported(at.Child("type"), m.Type, []autoscalingv2.MetricSourceType{
			autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
			autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
		}))
	}
	var present []string
	source := func(name string, check func(at *field.Path) field.ErrorList) {
		present = append(present, name)
		if len(present) == 1 {
			errs = append(errs, check(at.Child(name))...)
		}
	}
	if m.Object != nil {
		source("object", func(at *field.Path) field.ErrorList { return validateObjectMetric(m.Object, at) })
	}
	if m.External != nil {
		source("external", func(at *field.Path) field.ErrorList { return validateExternalMetric(m.External, at) })
	}
	if m.Pods != nil {
		source("pods", func(at *field.Path) field.ErrorList { return validatePodsMetric(m.Pods, at) })
	}
	if m.Resource != nil {
		source("resource", func(at *field.Path) field.ErrorList {
			return validateResourceMetric(string(m.Resource.Name), m.Resource.Target, at)
		})
	}
	if m.ContainerResource != nil {
		source("containerResource", func(at *field.Path) field.ErrorList {
			errs := validateResourceMetric(string(m.ContainerResource.Name), m.ContainerResource.Target, at)
			if m.ContainerResource.Name != "" {
				errs = append(errs, validate.ContainerResourceName(m.ContainerResource.Name, at.Child("name"))...)
			}
			if m.ContainerResource.Container == "" {
				errs = append(errs, field.Required(at.Child("container"), "must specify a container"))
			} else {
				errs = append(errs, validate.Label(m.ContainerResource.Container, at.Child("container"))...)
			}
			return errs
		})
	}
	expected := fields[m.Type]
	if expected != "" && !slices.Contains(present, expected) {
		errs = append(errs, field.Required(at.Child(expected), "must populate information for the given metric source"))
	}
	if len(present) != 1 {
		for _, name := range present {
			if name != expected {
				errs = append(errs, field.Forbidden(at.Child(name), "must populate the given metric source only"))
			}
		}
	}
	return errs
}

func validateObjectMetric(m *autoscalingv2.ObjectMetricSource, at *field.Path) field.ErrorList {
	errs := validateScaleReference(m.DescribedObject, at.Child("describedObject"))
	errs = append(errs, validateMetricIdentifier(m.Metric, at.Child("metric"))...)
	errs = append(errs, validateMetricTarget(m.Target, at.Child("target"))...)
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		errs = append(errs, field.Required(at.Child("target").Child("averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func validateExternalMetric(m *autoscalingv2.ExternalMetricSource, at *field.Path) field.ErrorList {
	errs := validateMetricIdentifier(m.Metric, at.Child("metric"))
	errs = append(errs, validateMetricTarget(m.Target, at.Child("target"))...)
	switch {
	case m.Target.Value == nil && m.Target.AverageValue == nil:
		errs = append(errs, field.Required(at.Child("target").Child("averageValue"), "must set either a target value for metric or a per-pod target"))
	case m.Target.Value != nil && m.Target.AverageValue != nil:
		errs = append(errs, field.Forbidden(at.Child("target").Child("value"), "may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func validatePodsMetric(m *autoscalingv2.PodsMetricSource, at *field.Path) field.ErrorList {
	errs := validateMetricIdentifier(m.Metric, at.Child("metric"))
	errs = append(errs, validateMetricTarget(m.Target, at.Child("target"))...)
	if m.Target.AverageValue == nil {
		errs = append(errs, field.Required(at.Child("target").Child("averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func validateResourceMetric(name string, target autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
	}
	errs = append(errs, validateMetricTarget(target, at.Child("target"))...)
	switch {
	case target.AverageUtilization == nil && target.AverageValue == nil:
		errs = append(errs, field.Required(at.Child("target").Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	case target.AverageUtilization != nil && target.AverageValue != nil:
		errs = append(errs, field.Forbidden(at.Child("target").Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateMetricIdentifier(m autoscalingv2.MetricIdentifier, at *field.Path) field.ErrorList {
	if m.Name == "" {
		return field.ErrorList{field.Required(at.Child("name"), "must specify a metric name")}
	}
	return validate.Invalids(at.Child("name"), m.Name, path.IsValidPathSegmentName(m.Name))
}

func validateMetricTarget(t autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric target type"))
	}
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		errs = append(errs, field.Invalid(at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("averageValue"), t.AverageValue, "must be positive"))
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(at.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}
