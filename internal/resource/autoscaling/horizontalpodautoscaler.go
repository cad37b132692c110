// Package autoscaling holds the kinds of the group autoscaling: HorizontalPodAutoscaler, and Scale,
// the body of scale subresources.
package autoscaling

import (
	"fmt"
	"strconv"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func AutoscalerStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(defaultAutoscaler)
	s.ValidateCreate = strategy.Checks(validateAutoscaler)
	s.ValidateUpdate = strategy.ChecksBoth(validateAutoscalerUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateAutoscalerStatus)
	return strategy.Show(s, autoscalerColumns, autoscalerRow)
}

func defaultAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	h.Annotations = api.WithoutConverted(h.Annotations)
	strategy.SetPointer(&h.Spec.MinReplicas, 1)
	if len(h.Spec.Metrics) == 0 {
		percent := int32(80)
		h.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
			},
		}}
	}
	if b := h.Spec.Behavior; b != nil {
		strategy.SetPointer(&b.ScaleUp, autoscalingv2.HPAScalingRules{})
		strategy.SetPointer(&b.ScaleUp.StabilizationWindowSeconds, 0)
		strategy.SetPointer(&b.ScaleUp.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
		if b.ScaleUp.Policies == nil {
			b.ScaleUp.Policies = []autoscalingv2.HPAScalingPolicy{
				{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
				{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
			}
		}
		strategy.SetPointer(&b.ScaleDown, autoscalingv2.HPAScalingRules{})
		strategy.SetPointer(&b.ScaleDown.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
		if b.ScaleDown.Policies == nil {
			b.ScaleDown.Policies = []autoscalingv2.HPAScalingPolicy{
				{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
			}
		}
	}
}

var autoscalerColumns = columns.Define("Name", "Reference@spec.scaleTargetRef", "Targets@spec.metrics", "MinPods@spec.minReplicas", "MaxPods@spec.maxReplicas", "Replicas@status.currentReplicas", "Age")

func autoscalerRow(h *autoscalingv2.HorizontalPodAutoscaler, now metav1.Time) []any {
	least := columns.Unset
	if h.Spec.MinReplicas != nil {
		least = strconv.Itoa(int(*h.Spec.MinReplicas))
	}
	return []any{
		h.Name, h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name, autoscalerTargets(h), least,
		int64(h.Spec.MaxReplicas), int64(h.Status.CurrentReplicas), columns.AgeOf(h, now),
	}
}

// autoscalerTargets lists current and desired value of at most two metrics.
func autoscalerTargets(h *autoscalingv2.HorizontalPodAutoscaler) string {
	const limit = 2
	if len(h.Spec.Metrics) == 0 {
		return columns.None
	}
	var list []string
	for i := range h.Spec.Metrics {
		var current *autoscalingv2.MetricStatus
		if i < len(h.Status.CurrentMetrics) {
			current = &h.Status.CurrentMetrics[i]
		}
		list = append(list, metricText(&h.Spec.Metrics[i], current))
	}
	if len(list) > limit {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:limit], ", "), len(list)-limit)
	}
	return strings.Join(list, ", ")
}

func metricText(m *autoscalingv2.MetricSpec, current *autoscalingv2.MetricStatus) string {
	var target autoscalingv2.MetricTarget
	var value *autoscalingv2.MetricValueStatus
	prefix := ""
	switch {
	case m.External != nil:
		target = m.External.Target
		if current != nil && current.External != nil {
			value = &current.External.Current
		}
	case m.Pods != nil:
		target = m.Pods.Target
		if current != nil && current.Pods != nil {
			value = &current.Pods.Current
		}
	case m.Object != nil:
		target = m.Object.Target
		if current != nil && current.Object != nil {
			value = &current.Object.Current
		}
	case m.Resource != nil:
		target, prefix = m.Resource.Target, string(m.Resource.Name)+": "
		if current != nil && current.Resource != nil {
			value = &current.Resource.Current
		}
	case m.ContainerResource != nil:
		target, prefix = m.ContainerResource.Target, string(m.ContainerResource.Name)+": "
		if current != nil && current.ContainerResource != nil {
			value = &current.ContainerResource.Current
		}
	default:
		return "<unknown type>"
	}
	is := columns.Unknown
	switch {
	case target.AverageUtilization != nil:
		if value != nil && value.AverageUtilization != nil {
			is = fmt.Sprintf("%d%%", *value.AverageUtilization)
		}
		return fmt.Sprintf("%s%s/%d%%", prefix, is, *target.AverageUtilization)
	case target.AverageValue != nil:
		if value != nil && value.AverageValue != nil {
			is = value.AverageValue.String()
		}
		average := " (avg)"
		if m.Pods != nil || m.Resource != nil || m.ContainerResource != nil {
			average = ""
		}
		return prefix + is + "/" + target.AverageValue.String() + average
	case target.Value != nil:
		if value != nil && value.Value != nil {
			is = value.Value.String()
		}
		return prefix + is + "/" + target.Value.String()
	}
	return prefix + is + "/<auto>"
}
