package resource

import (
	"math"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/api"
)

func defaultDeployment(d *appsv1.Deployment) {
	spec := &d.Spec
	setPointer(&spec.Replicas, 1)
	setDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		setPointer(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		setPointer(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		setPointer(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	setPointer(&spec.RevisionHistoryLimit, 10)
	setPointer(&spec.ProgressDeadlineSeconds, 600)
	defaultTemplate(&spec.Template)
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	spec := &d.Spec
	setDefault(&spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		setPointer(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		setPointer(&spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		setPointer(&spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	setPointer(&spec.RevisionHistoryLimit, 10)
	defaultTemplate(&spec.Template)
	if d.Annotations[appsv1.DeprecatedTemplateGeneration] == "" {
		setTemplateGeneration(d, 0) // every writer of the object defaults this field as well
	}
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	setDefault(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		setPointer(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && spec.UpdateStrategy.RollingUpdate != nil {
		setPointer(&spec.UpdateStrategy.RollingUpdate.Partition, 0)
	}
	setPointer(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	setDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	setDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	setPointer(&spec.Replicas, 1)
	setPointer(&spec.RevisionHistoryLimit, 10)
	defaultTemplate(&spec.Template)
	for i := range spec.VolumeClaimTemplates {
		c := &spec.VolumeClaimTemplates[i]
		// Replaces any other kind that the client wrote.
		c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim"
		defaultClaim(c)
	}
}

func defaultReplicaSet(r *appsv1.ReplicaSet) {
	setPointer(&r.Spec.Replicas, 1)
	defaultTemplate(&r.Spec.Template)
}

func defaultJob(j *batchv1.Job) {
	spec := &j.Spec
	// Without completions and parallelism, one pod has to complete. With parallelism alone, the
	// pods decide when the work is done (a work queue).
	if spec.Completions == nil && spec.Parallelism == nil {
		setPointer(&spec.Completions, 1)
	}
	setPointer(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		setPointer(&spec.BackoffLimit, math.MaxInt32)
	} else {
		setPointer(&spec.BackoffLimit, 6)
	}
	if len(j.Labels) == 0 {
		j.Labels = spec.Template.Labels
	}
	setPointer(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	setPointer(&spec.Suspend, false)
	setPointer(&spec.ManualSelector, false)
	if p := spec.PodFailurePolicy; p != nil {
		setPointer(&spec.PodReplacementPolicy, batchv1.Failed)
		for i := range p.Rules {
			for j := range p.Rules[i].OnPodConditions {
				setDefault(&p.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
			}
		}
	} else {
		setPointer(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	}
	defaultTemplate(&spec.Template)
}

func defaultCronJob(c *batchv1.CronJob) {
	spec := &c.Spec
	setDefault(&spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	setPointer(&spec.Suspend, false)
	setPointer(&spec.SuccessfulJobsHistoryLimit, 3)
	setPointer(&spec.FailedJobsHistoryLimit, 1)
	// As upstream, the job of the template gets its defaults only when it is created; its pod
	// template gets them here.
	job := &spec.JobTemplate.Spec
	if p := job.PodFailurePolicy; p != nil {
		for i := range p.Rules {
			for j := range p.Rules[i].OnPodConditions {
				setDefault(&p.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	defaultTemplate(&job.Template)
}

func defaultAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	h.Annotations = api.WithoutConverted(h.Annotations)
	setPointer(&h.Spec.MinReplicas, 1)
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
		setPointer(&b.ScaleUp, autoscalingv2.HPAScalingRules{})
		setPointer(&b.ScaleUp.StabilizationWindowSeconds, 0)
		setPointer(&b.ScaleUp.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
		if b.ScaleUp.Policies == nil {
			b.ScaleUp.Policies = []autoscalingv2.HPAScalingPolicy{
				{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
				{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
			}
		}
		setPointer(&b.ScaleDown, autoscalingv2.HPAScalingRules{})
		setPointer(&b.ScaleDown.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
		if b.ScaleDown.Policies == nil {
			b.ScaleDown.Policies = []autoscalingv2.HPAScalingPolicy{
				{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
			}
		}
	}
}
