package resource

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func deploymentStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultDeployment)
	s.PrepareUpdate = strategy.OnBoth(func(d, old *appsv1.Deployment) {
		d.Status = *old.Status.DeepCopy()
		// Annotations count as well, because the controller copies them to the replica sets.
		strategy.SetGeneration(d, old, !apiequality.Semantic.DeepEqual(d.Spec, old.Spec) || !apiequality.Semantic.DeepEqual(d.Annotations, old.Annotations))
	})
	s.PrepareStatus = strategy.OnBoth(func(d, old *appsv1.Deployment) {
		spec := old.DeepCopy()
		d.Spec, d.Labels = spec.Spec, spec.Labels
	})
	s.Resets = map[string][]string{"status": {"metadata.labels"}}
	s.ValidateCreate = strategy.Checks(validateDeployment)
	s.ValidateUpdate = strategy.ChecksBoth(validateDeploymentUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateDeploymentStatus)
	return strategy.Show(makesPods(s), deploymentColumns, deploymentRow)
}

func daemonSetStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultDaemonSet)
	s.PrepareCreate = strategy.On(func(d *appsv1.DaemonSet) {
		d.Status = appsv1.DaemonSetStatus{}
		d.Generation = 1
		setTemplateGeneration(d, 1)
	})
	s.PrepareUpdate = strategy.OnBoth(func(d, old *appsv1.DaemonSet) {
		d.Status = *old.Status.DeepCopy()
		generation, _ := strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
		if !apiequality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
			generation++
		}
		setTemplateGeneration(d, generation)
		strategy.SetGeneration(d, old, !apiequality.Semantic.DeepEqual(d.Spec, old.Spec))
	})
	// The template generation is an annotation but belongs to the spec: a status update keeps it.
	s.PrepareStatus = strategy.OnBoth(func(d, old *appsv1.DaemonSet) {
		d.Spec = *old.Spec.DeepCopy()
		generation, _ := strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
		setTemplateGeneration(d, generation)
	})
	s.ValidateCreate = strategy.Checks(validateDaemonSet)
	s.ValidateUpdate = strategy.ChecksBoth(validateDaemonSetUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateDaemonSetStatus)
	return strategy.Show(makesPods(s), daemonSetColumns, daemonSetRow)
}

func setTemplateGeneration(d *appsv1.DaemonSet, generation int64) {
	text := strconv.FormatInt(generation, 10)
	if d.Annotations[appsv1.DeprecatedTemplateGeneration] == text {
		return
	}
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = text
}

func statefulSetStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultStatefulSet)
	s.Warnings = statefulSetWarnings
	s.DropFields(func(obj, old runtime.Object) {
		// MaxUnavailableStatefulSet is off.
		if r := obj.(*appsv1.StatefulSet).Spec.UpdateStrategy.RollingUpdate; r != nil {
			if old == nil || old.(*appsv1.StatefulSet).Spec.UpdateStrategy.RollingUpdate == nil || old.(*appsv1.StatefulSet).Spec.UpdateStrategy.RollingUpdate.MaxUnavailable == nil {
				r.MaxUnavailable = nil
			}
		}
	})
	s.ValidateCreate = strategy.Checks(validateStatefulSet)
	s.ValidateUpdate = strategy.ChecksBoth(validateStatefulSetUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateStatefulSetStatus)
	s.ValidateName = apivalidation.NameIsDNSLabel
	return strategy.Show(makesPods(s), statefulSetColumns, statefulSetRow)
}

func replicaSetStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultReplicaSet)
	s.ValidateCreate = strategy.Checks(validateReplicaSet)
	s.ValidateUpdate = strategy.ChecksBoth(validateReplicaSetUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateReplicaSetStatus)
	return strategy.Show(makesPods(s), replicaSetColumns, replicaSetRow)
}

func controllerRevisionStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.ValidateCreate = strategy.Checks(validateControllerRevision)
	s.ValidateUpdate = strategy.ChecksBoth(validateControllerRevisionUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), controllerRevisionColumns, controllerRevisionRow)
}

func jobStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultJob)
	s.PrepareCreate = strategy.On(prepareJob)
	s.DefaultPropagation = metav1.DeletePropagationOrphan
	s.FieldNames = []string{"status.successful"}
	s.Fields = func(obj runtime.Object) fields.Set {
		return fields.Set{"status.successful": strconv.Itoa(int(obj.(*batchv1.Job).Status.Succeeded))}
	}
	s.ValidateCreate = strategy.Checks(validateJob)
	s.ValidateUpdate = strategy.ChecksBoth(validateJobUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateJobStatus)
	return strategy.Show(strategy.WithNameRuleOnUpdate(makesPods(s, indexedWarnings)), jobColumns, jobRow)
}

// Labels that tie pods to their job, and their names before Kubernetes 1.27.
const (
	oldControllerUIDLabel = "controller-uid"
	oldJobNameLabel       = "job-name"
)

// prepareJob ties the job's pods to it by unique labels, unless the user has chosen the selector.
// The job must already have name and uid.
func prepareJob(j *batchv1.Job) {
	j.Status = batchv1.JobStatus{}
	j.Generation = 1
	if manual := j.Spec.ManualSelector; manual != nil && *manual {
		return
	}
	labels := j.Spec.Template.Labels
	if labels == nil {
		labels = map[string]string{}
		j.Spec.Template.Labels = labels
	}
	for key, value := range map[string]string{
		oldControllerUIDLabel:      string(j.UID),
		oldJobNameLabel:            j.Name,
		batchv1.ControllerUidLabel: string(j.UID),
		batchv1.JobNameLabel:       j.Name,
	} {
		if _, ok := labels[key]; !ok {
			labels[key] = value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(labels) // a job without labels gets those of its pods
	}
}

func cronJobStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultCronJob)
	s.ValidateCreate = strategy.Checks(validateCronJob)
	s.ValidateUpdate = strategy.ChecksBoth(validateCronJobUpdate)
	return strategy.Show(makesPods(s, indexedWarnings), cronJobColumns, cronJobRow)
}

func autoscalerStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(defaultAutoscaler)
	s.ValidateCreate = strategy.Checks(validateAutoscaler)
	s.ValidateUpdate = strategy.ChecksBoth(validateAutoscalerUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateAutoscalerStatus)
	return strategy.Show(s, autoscalerColumns, autoscalerRow)
}

func disruptionBudgetStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(false)
	s.ValidateName, s.LateMeta = strategy.PathSegment, true
	s.ValidateCreate = strategy.Checks(validateDisruptionBudget)
	s.ValidateUpdate = strategy.ChecksBoth(validateDisruptionBudgetUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateDisruptionBudgetStatus)
	return strategy.Show(strategy.WithLooseFinalizers(s), disruptionBudgetColumns, disruptionBudgetRow)
}
