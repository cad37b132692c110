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
)

func deploymentStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Default = on(defaultDeployment)
	s.PrepareUpdate = onBoth(func(d, old *appsv1.Deployment) {
		d.Status = *old.Status.DeepCopy()
		// Annotations count as well, because the controller copies them to the replica sets.
		setGeneration(d, old, !apiequality.Semantic.DeepEqual(d.Spec, old.Spec) || !apiequality.Semantic.DeepEqual(d.Annotations, old.Annotations))
	})
	s.PrepareStatus = onBoth(func(d, old *appsv1.Deployment) {
		spec := old.DeepCopy()
		d.Spec, d.Labels = spec.Spec, spec.Labels
	})
	s.Resets = map[string][]string{"status": {"metadata.labels"}}
	s.ValidateCreate = checks(validateDeployment)
	s.ValidateUpdate = checksBoth(validateDeploymentUpdate)
	s.ValidateStatus = checksBoth(validateDeploymentStatus)
	return show(makesPods(s), deploymentColumns, deploymentRow)
}

func daemonSetStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Default = on(defaultDaemonSet)
	s.PrepareCreate = on(func(d *appsv1.DaemonSet) {
		d.Status = appsv1.DaemonSetStatus{}
		d.Generation = 1
		setTemplateGeneration(d, 1)
	})
	s.PrepareUpdate = onBoth(func(d, old *appsv1.DaemonSet) {
		d.Status = *old.Status.DeepCopy()
		generation, _ := strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
		if !apiequality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
			generation++
		}
		setTemplateGeneration(d, generation)
		setGeneration(d, old, !apiequality.Semantic.DeepEqual(d.Spec, old.Spec))
	})
	// The template generation is an annotation but belongs to the spec: a status update keeps it.
	s.PrepareStatus = onBoth(func(d, old *appsv1.DaemonSet) {
		d.Spec = *old.Spec.DeepCopy()
		generation, _ := strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
		setTemplateGeneration(d, generation)
	})
	s.ValidateCreate = checks(validateDaemonSet)
	s.ValidateUpdate = checksBoth(validateDaemonSetUpdate)
	s.ValidateStatus = checksBoth(validateDaemonSetStatus)
	return show(makesPods(s), daemonSetColumns, daemonSetRow)
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

func statefulSetStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Default = on(defaultStatefulSet)
	s.Warnings = statefulSetWarnings
	s.dropping(func(obj, old runtime.Object) {
		// MaxUnavailableStatefulSet is off.
		if r := obj.(*appsv1.StatefulSet).Spec.UpdateStrategy.RollingUpdate; r != nil {
			if old == nil || old.(*appsv1.StatefulSet).Spec.UpdateStrategy.RollingUpdate == nil || old.(*appsv1.StatefulSet).Spec.UpdateStrategy.RollingUpdate.MaxUnavailable == nil {
				r.MaxUnavailable = nil
			}
		}
	})
	s.ValidateCreate = checks(validateStatefulSet)
	s.ValidateUpdate = checksBoth(validateStatefulSetUpdate)
	s.ValidateStatus = checksBoth(validateStatefulSetStatus)
	s.ValidateName = apivalidation.NameIsDNSLabel
	return show(makesPods(s), statefulSetColumns, statefulSetRow)
}

func replicaSetStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Default = on(defaultReplicaSet)
	s.ValidateCreate = checks(validateReplicaSet)
	s.ValidateUpdate = checksBoth(validateReplicaSetUpdate)
	s.ValidateStatus = checksBoth(validateReplicaSetStatus)
	return show(makesPods(s), replicaSetColumns, replicaSetRow)
}

func controllerRevisionStrategy() *Strategy {
	s := plain(true)
	s.ValidateCreate = checks(validateControllerRevision)
	s.ValidateUpdate = checksBoth(validateControllerRevisionUpdate)
	return show(renames(s), controllerRevisionColumns, controllerRevisionRow)
}

func jobStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Default = on(defaultJob)
	s.PrepareCreate = on(prepareJob)
	s.DefaultPropagation = metav1.DeletePropagationOrphan
	s.FieldNames = []string{"status.successful"}
	s.Fields = func(obj runtime.Object) fields.Set {
		return fields.Set{"status.successful": strconv.Itoa(int(obj.(*batchv1.Job).Status.Succeeded))}
	}
	s.ValidateCreate = checks(validateJob)
	s.ValidateUpdate = checksBoth(validateJobUpdate)
	s.ValidateStatus = checksBoth(validateJobStatus)
	return show(renames(makesPods(s, indexedWarnings)), jobColumns, jobRow)
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

func cronJobStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Default = on(defaultCronJob)
	s.ValidateCreate = checks(validateCronJob)
	s.ValidateUpdate = checksBoth(validateCronJobUpdate)
	return show(makesPods(s, indexedWarnings), cronJobColumns, cronJobRow)
}

func autoscalerStrategy() *Strategy {
	s := withStatus(true)
	s.Default = on(defaultAutoscaler)
	s.ValidateCreate = checks(validateAutoscaler)
	s.ValidateUpdate = checksBoth(validateAutoscalerUpdate)
	s.ValidateStatus = checksBoth(validateAutoscalerStatus)
	return show(s, autoscalerColumns, autoscalerRow)
}

func disruptionBudgetStrategy() *Strategy {
	s := withStatusAndGeneration(false)
	s.ValidateName, s.LateMeta = pathSegment, true
	s.ValidateCreate = checks(validateDisruptionBudget)
	s.ValidateUpdate = checksBoth(validateDisruptionBudgetUpdate)
	s.ValidateStatus = checksBoth(validateDisruptionBudgetStatus)
	return show(loose(s), disruptionBudgetColumns, disruptionBudgetRow)
}
