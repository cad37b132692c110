// Package batch holds the kinds of the group batch.
package batch

import (
	"fmt"
	"maps"
	"math"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func JobStrategy() *strategy.Strategy {
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
	return strategy.Show(strategy.WithNameRuleOnUpdate(pods.WithTemplateRules(s, indexedWarnings)), jobColumns, jobRow)
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
	pods.DefaultTemplate(&spec.Template)
}

// indexedWarnings warns of jobs and job templates with very many indexes. An update warns only if
// it changes something about the job.
func indexedWarnings(obj, old runtime.Object) []string {
	if old != nil && !pods.WarnedAgain(obj, old) {
		return nil
	}
	var spec *batchv1.JobSpec
	at := validate.SpecPath
	switch o := obj.(type) {
	case *batchv1.Job:
		spec = &o.Spec
	case *batchv1.CronJob:
		spec, at = &o.Spec.JobTemplate.Spec, validate.SpecPath.Child("jobTemplate", "spec")
	default:
		return nil
	}
	if !indexed(spec) || validate.Deref(spec.Completions) <= highCompletions || validate.Deref(spec.Parallelism) <= maxParallelismAboveHigh {
		return nil
	}
	return []string{at.String() + ": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"}
}

var jobColumns = columns.Define("Name", "Status=Status of the job.", "Completions@status.succeeded", "Duration=Time required to complete the job.", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func jobRow(j *batchv1.Job, now metav1.Time) []any {
	var completions string
	parallelism := validate.Deref(j.Spec.Parallelism)
	switch {
	case j.Spec.Completions != nil:
		completions = fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case parallelism > 1:
		completions = fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	default:
		completions = fmt.Sprintf("%d/1", j.Status.Succeeded)
	}
	took := ""
	if start := j.Status.StartTime; start != nil {
		end := now.Time
		if j.Status.CompletionTime != nil {
			end = j.Status.CompletionTime.Time
		}
		took = duration.HumanDuration(end.Sub(start.Time))
	}
	return []any{
		j.Name, jobStatus(j), completions, took, columns.AgeOf(j, now),
		pods.ContainerNames(&j.Spec.Template.Spec), pods.ContainerImages(&j.Spec.Template.Spec), columns.SelectorText(j.Spec.Selector),
	}
}

func jobStatus(j *batchv1.Job) string {
	is := func(kind batchv1.JobConditionType) bool {
		for _, c := range j.Status.Conditions {
			if c.Type == kind {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	switch {
	case is(batchv1.JobComplete):
		return "Complete"
	case is(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case is(batchv1.JobSuspended):
		return "Suspended"
	case is(batchv1.JobFailureTarget):
		return "FailureTarget"
	case is(batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}
