package api

import (
	"encoding/json"
	"maps"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// autoscaling/v1 has only a CPU target. These annotations carry the other fields of v2 as JSON.
const (
	hpaMetricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	hpaCurrentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	hpaConditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
	hpaBehaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
)

// hpaAnnotations are annotations that only conversions write. The last two hold tolerances; older
// servers wrote them.
var hpaAnnotations = []string{
	hpaMetricsAnnotation, hpaCurrentMetricsAnnotation, hpaConditionsAnnotation, hpaBehaviorAnnotation,
	"autoscaling.alpha.kubernetes.io/scale-down-tolerance", "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
}

// WithoutConverted removes the annotations that carry fields of v2 in a v1
// HorizontalPodAutoscaler. In v2 they have no meaning, but a reader of v1 would take them for the
// fields. The given map does not change.
func WithoutConverted(annotations map[string]string) map[string]string {
	if !slices.ContainsFunc(hpaAnnotations, func(name string) bool { _, ok := annotations[name]; return ok }) {
		return annotations
	}
	out := maps.Clone(annotations)
	for _, name := range hpaAnnotations {
		delete(out, name)
	}
	return out
}

// hpaBehavior is the annotation's form of the behaviour. As upstream, its field names have no JSON
// tags.
type hpaBehavior struct {
	ScaleUp   *hpaScalingRules
	ScaleDown *hpaScalingRules
}

type hpaScalingRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []hpaScalingPolicy
	Tolerance                  *json.RawMessage
}

type hpaScalingPolicy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func hpaToV1(in *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	out.Annotations = WithoutConverted(in.Annotations)

	var others []autoscalingv1.MetricSpec
	for i := range in.Spec.Metrics {
		m := &in.Spec.Metrics[i]
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU &&
			m.Resource.Target.AverageUtilization != nil && out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
			continue
		}
		others = append(others, metricSpecToV1(m))
	}
	if err := annotate(out, hpaMetricsAnnotation, others, len(others)); err != nil {
		return nil, err
	}
	current := make([]autoscalingv1.MetricStatus, 0, len(in.Status.CurrentMetrics))
	for i := range in.Status.CurrentMetrics {
		m := &in.Status.CurrentMetrics[i]
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU &&
			m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		current = append(current, metricStatusToV1(m))
	}
	if err := annotate(out, hpaCurrentMetricsAnnotation, current, len(current)); err != nil {
		return nil, err
	}
	conditions := make([]autoscalingv1.HorizontalPodAutoscalerCondition, 0, len(in.Status.Conditions))
	for _, c := range in.Status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	if err := annotate(out, hpaConditionsAnnotation, conditions, len(conditions)); err != nil {
		return nil, err
	}
	if b := in.Spec.Behavior; b != nil {
		up, err := rulesToAnnotation(b.ScaleUp)
		if err != nil {
			return nil, err
		}
		down, err := rulesToAnnotation(b.ScaleDown)
		if err != nil {
			return nil, err
		}
		if err := annotate(out, hpaBehaviorAnnotation, hpaBehavior{ScaleUp: up, ScaleDown: down}, 1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func annotate(hpa *autoscalingv1.HorizontalPodAutoscaler, name string, value any, count int) error {
	if count == 0 {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	hpa.Annotations = maps.Clone(hpa.Annotations)
	if hpa.Annotations == nil {
		hpa.Annotations = map[string]string{}
	}
	hpa.Annotations[name] = string(data)
	return nil
}

func rulesToAnnotation(r *autoscalingv2.HPAScalingRules) (*hpaScalingRules, error) {
	if r == nil {
		return nil, nil
	}
	out := &hpaScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, hpaScalingPolicy(p))
	}
	if r.Tolerance != nil {
		data, err := json.Marshal(r.Tolerance)
		if err != nil {
			return nil, err
		}
		out.Tolerance = (*json.RawMessage)(&data)
	}
	return out, nil
}

func rulesFromAnnotation(r *hpaScalingRules) (*autoscalingv2.HPAScalingRules, error) {
	if r == nil {
		return nil, nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy(p))
	}
	if r.Tolerance != nil {
		if err := bounds.Document(*r.Tolerance, out.Tolerance); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(*r.Tolerance, &out.Tolerance); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func hpaToV2(in *autoscalingv1.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	if err := hpaSpecFromAnnotations(in, out); err != nil {
		return nil, err
	}
	if err := hpaStatusFromAnnotations(in, out); err != nil {
		return nil, err
	}
	out.Annotations = WithoutConverted(in.Annotations)
	return out, nil
}

func hpaSpecFromAnnotations(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler) error {
	if text, ok := in.Annotations[hpaMetricsAnnotation]; ok {
		var metrics []autoscalingv1.MetricSpec
		if err := bounds.Document([]byte(text), metrics); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &metrics); err != nil {
			metrics = nil // clients may write invalid JSON
		}
		for i := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, metricSpecToV2(&metrics[i]))
		}
	}
	if percent := in.Spec.TargetCPUUtilizationPercentage; percent != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, autoscalingv2.MetricSpec{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: percent},
			},
		})
	}
	text, ok := in.Annotations[hpaBehaviorAnnotation]
	if !ok {
		return nil
	}
	var b *hpaBehavior
	if json.Unmarshal([]byte(text), &b) != nil || b == nil || *b == (hpaBehavior{}) {
		return nil
	}
	up, err := rulesFromAnnotation(b.ScaleUp)
	if err != nil {
		return err
	}
	down, err := rulesFromAnnotation(b.ScaleDown)
	if err != nil {
		return err
	}
	out.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: up, ScaleDown: down}
	return nil
}

func hpaStatusFromAnnotations(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler) error {
	// Clients may write invalid JSON, which is dropped.
	if percent := in.Status.CurrentCPUUtilizationPercentage; percent != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name:    corev1.ResourceCPU,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: percent},
			},
		}}
	}
	if text, ok := in.Annotations[hpaCurrentMetricsAnnotation]; ok {
		var current []autoscalingv1.MetricStatus
		if bounds.Document([]byte(text), current) == nil && json.Unmarshal([]byte(text), &current) == nil {
			out.Status.CurrentMetrics = nil
			for i := range current {
				out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, metricStatusToV2(&current[i]))
			}
		}
	}
	if text, ok := in.Annotations[hpaConditionsAnnotation]; ok {
		var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
		if err := json.Unmarshal([]byte(text), &conditions); err == nil {
			for _, c := range conditions {
				out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
					Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
					LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
				})
			}
		}
	}
	return nil
}
