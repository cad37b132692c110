package resource

import (
	"math"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func defaultDeployment(d *appsv1.Deployment) {
	spec := &d.Spec
	strategy.SetPointer(&spec.Replicas, 1)
	strategy.SetDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		strategy.SetPointer(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		strategy.SetPointer(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		strategy.SetPointer(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	strategy.SetPointer(&spec.RevisionHistoryLimit, 10)
	strategy.SetPointer(&spec.ProgressDeadlineSeconds, 600)
	defaultTemplate(&spec.Template)
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	spec := &d.Spec
	strategy.SetDefault(&spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	strategy.SetPointer(&spec.RevisionHistoryLimit, 10)
	defaultTemplate(&spec.Template)
	if d.Annotations[appsv1.DeprecatedTemplateGeneration] == "" {
		setTemplateGeneration(d, 0) // every writer of the object defaults this field as well
	}
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	strategy.SetDefault(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && spec.UpdateStrategy.RollingUpdate != nil {
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate.Partition, 0)
	}
	strategy.SetPointer(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	strategy.SetDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	strategy.SetDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	strategy.SetPointer(&spec.Replicas, 1)
	strategy.SetPointer(&spec.RevisionHistoryLimit, 10)
	defaultTemplate(&spec.Template)
	for i := range spec.VolumeClaimTemplates {
		c := &spec.VolumeClaimTemplates[i]
		// Replaces any other kind that the client wrote.
		c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim"
		defaultClaim(c)
	}
}

func defaultReplicaSet(r *appsv1.ReplicaSet) {
	strategy.SetPointer(&r.Spec.Replicas, 1)
	defaultTemplate(&r.Spec.Template)
}

func defaultJob(j *batchv1.Job) {
	spec := &j.Spec
	// Without completions and parallelism, one pod has to complete. With parallelism alone, the
	// pods decide when the work is done (a work queue).
	if spec.Completions == nil && spec.Parallelism == nil {
		strategy.SetPointer(&spec.Completions, 1)
	}
	strategy.SetPointer(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		strategy.SetPointer(&spec.BackoffLimit, math.MaxInt32)
	} else {
		strategy.SetPointer(&spec.BackoffLimit, 6)
	}
	if len(j.Labels) == 0 {
		j.Labels = spec.Template.Labels
	}
	strategy.SetPointer(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	strategy.SetPointer(&spec.Suspend, false)
	strategy.SetPointer(&spec.ManualSelector, false)
	if p := spec.PodFailurePolicy; p != nil {
		strategy.SetPointer(&spec.PodReplacementPolicy, batchv1.Failed)
		for i := range p.Rules {
			for j := range p.Rules[i].OnPodConditions {
				strategy.SetDefault(&p.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
			}
		}
	} else {
		strategy.SetPointer(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	}
	defaultTemplate(&spec.Template)
}

func defaultCronJob(c *batchv1.CronJob) {
	spec := &c.Spec
	strategy.SetDefault(&spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	strategy.SetPointer(&spec.Suspend, false)
	strategy.SetPointer(&spec.SuccessfulJobsHistoryLimit, 3)
	strategy.SetPointer(&spec.FailedJobsHistoryLimit, 1)
	// As upstream, the job of the template gets its defaults only when it is created; its pod
	// template gets them here.
	job := &spec.JobTemplate.Spec
	if p := job.PodFailurePolicy; p != nil {
		for i := range p.Rules {
			for j := range p.Rules[i].OnPodConditions {
				strategy.SetDefault(&p.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	defaultTemplate(&job.Template)
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
