package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	s, path := &j.Status, field.NewPath("status")
	errs := validate.NonNegativeCounts(path, validate.CountOf("active", s.Active), validate.CountOf("succeeded", s.Succeeded), validate.CountOf("failed", s.Failed))
	errs = append(errs, validate.OptionalNonNegative(s.Ready, path.Child("ready"))...)
	errs = append(errs, validate.OptionalNonNegative(s.Terminating, path.Child("terminating"))...)
	if u := s.UncountedTerminatedPods; u != nil {
		seen := map[string]bool{}
		for _, list := range []struct {
			name string
			uids []string
		}{{"succeeded", texts(u.Succeeded)}, {"failed", texts(u.Failed)}} {
			for i, uid := range list.uids {
				path := path.Child("uncountedTerminatedPods", list.name).Index(i)
				switch {
				case uid == "":
					errs = append(errs, field.Invalid(path, uid, "must not be empty"))
				case seen[uid]:
					errs = append(errs, field.Duplicate(path, uid))
				}
				seen[uid] = true
			}
		}
	}
	if s.Ready != nil && *s.Ready > s.Active && (!validate.EqualPointers(s.Ready, old.Status.Ready) || s.Active != old.Status.Active) {
		errs = append(errs, field.Invalid(path.Child("ready"), *s.Ready, "cannot set more ready pods than active"))
	}
	errs = append(errs, validateJobIndexes(j, old, path)...)
	for _, c := range []struct {
		name    string
		is, was int32
	}{{"succeeded", s.Succeeded, old.Status.Succeeded}, {"failed", s.Failed, old.Status.Failed}} {
		if c.is < c.was && !(c.name == "succeeded" && elastic(&j.Spec)) {
			errs = append(errs, field.Invalid(path.Child(c.name), c.is, fmt.Sprintf("cannot decrease the %s counter", c.name)))
		}
	}
	if was := old.Status.StartTime; was != nil && !validate.Deref(j.Spec.Suspend) && !resumes(s, &old.Status) && !was.Equal(s.StartTime) {
		errs = append(errs, field.Invalid(path.Child("startTime"), s.StartTime, "field is immutable for unsuspended job once set"))
	}
	return append(errs, validateJobProgress(j, s, &old.Status, path)...)
}

// elastic reports whether the job may have shrunk: succeeded indexes beyond its end no longer count
// (KEP-3715).
func elastic(spec *batchv1.JobSpec) bool {
	return indexed(spec) && validate.EqualPointers(spec.Completions, spec.Parallelism)
}

// resumes reports whether this status ends a suspension.
func resumes(s, old *batchv1.JobStatus) bool {
	is := func(list []batchv1.JobCondition, status corev1.ConditionStatus) bool {
		return slices.ContainsFunc(list, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended && c.Status == status })
	}
	return is(old.Conditions, corev1.ConditionTrue) && is(s.Conditions, corev1.ConditionFalse)
}

// validateJobIndexes checks changed lists of completed and failed indexes.
func validateJobIndexes(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	s, completions := &j.Status, validate.Deref(j.Spec.Completions)
	completedChanged, failedChanged := s.CompletedIndexes != old.Status.CompletedIndexes, !validate.EqualPointers(s.FailedIndexes, old.Status.FailedIndexes)
	completed, completedErr := parseIndexes(s.CompletedIndexes, completions)
	failed, failedErr := parseIndexes(validate.Deref(s.FailedIndexes), completions)
	if completedChanged && completedErr != nil {
		errs = append(errs, field.Invalid(path.Child("completedIndexes"), s.CompletedIndexes, fmt.Sprintf("error parsing completedIndexes: %s", completedErr)))
	}
	if failedChanged && s.FailedIndexes != nil {
		if j.Spec.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Invalid(path.Child("failedIndexes"), *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
		} else if failedErr != nil {
			errs = append(errs, field.Invalid(path.Child("failedIndexes"), *s.FailedIndexes, fmt.Sprintf("error parsing failedIndexes: %s", failedErr)))
		}
	}
	if completedChanged && s.CompletedIndexes != "" && !indexed(&j.Spec) {
		errs = append(errs, field.Invalid(path.Child("completedIndexes"), s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode"))
	}
	if completedErr != nil || failedErr != nil || !completedChanged && !failedChanged {
		return errs
	}
	for _, a := range completed { // both lists are sorted
		for len(failed) > 0 && failed[0].last < a.first {
			failed = failed[1:]
		}
		if len(failed) > 0 && failed[0].first <= a.last {
			return append(errs, field.Invalid(path.Child("failedIndexes"), *s.FailedIndexes, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", max(a.first, failed[0].first))))
		}
	}
	return errs
}

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// validateJobProgress refuses to reopen a finished job.
func validateJobProgress(j *batchv1.Job, s, old *batchv1.JobStatus, path *field.Path) field.ErrorList {
	has := func(s *batchv1.JobStatus, kind batchv1.JobConditionType) bool {
		return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
	}
	var errs field.ErrorList
	wrong := func(format string, args ...any) {
		errs = append(errs, field.Invalid(path.Child("conditions"), field.OmitValueType{}, fmt.Sprintf(format, args...)))
	}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget} {
		if has(old, kind) && !has(s, kind) {
			wrong("cannot disable the terminal %s=True condition", kind)
		}
	}
	if has(old, batchv1.JobSuccessCriteriaMet) && !has(s, batchv1.JobSuccessCriteriaMet) {
		wrong("cannot disable the SuccessCriteriaMet=True condition")
	}
	for _, success := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobSuccessCriteriaMet} {
		for _, failure := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobFailureTarget} {
			if has(s, success) && has(s, failure) {
				wrong("cannot set %s=True and %s=true conditions", success, failure)
			}
		}
	}
	if has(s, batchv1.JobFailed) && !has(old, batchv1.JobFailed) && !has(s, batchv1.JobFailureTarget) {
		wrong("cannot set Failed=True condition without the FailureTarget=true condition")
	}
	if has(s, batchv1.JobComplete) && !has(s, batchv1.JobSuccessCriteriaMet) {
		wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	}
	finished := has(s, batchv1.JobComplete) || has(s, batchv1.JobFailed)
	if finished {
		errs = append(errs, validateNoPodsLeft(s, path)...)
	}
	if was := old.CompletionTime; was != nil && s.CompletionTime != nil && !was.Equal(s.CompletionTime) {
		errs = append(errs, field.Invalid(path.Child("completionTime"), s.CompletionTime, apivalidation.FieldImmutableErrorMsg))
	}
	if s.CompletionTime != nil && !has(s, batchv1.JobComplete) {
		errs = append(errs, field.Invalid(path.Child("completionTime"), s.CompletionTime, "cannot set completionTime when there is no Complete=True condition"))
	}
	if has(s, batchv1.JobComplete) && s.CompletionTime == nil {
		errs = append(errs, field.Required(path.Child("completionTime"), "completionTime is required for Complete jobs"))
	}
	if s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		errs = append(errs, field.Invalid(path.Child("completionTime"), s.CompletionTime, "must be equal to or after `startTime`"))
	}
	// Such a job is complete without having started.
	nothingToDo := validate.Deref(j.Spec.Suspend) && j.Spec.Completions != nil && *j.Spec.Completions == 0
	if finished && !nothingToDo && s.StartTime == nil && !(old.StartTime == nil && (has(old, batchv1.JobComplete) || has(old, batchv1.JobFailed))) {
		errs = append(errs, field.Required(path.Child("startTime"), "startTime is required for finished job"))
	}
	return errs
}

// validateNoPodsLeft checks that a finished job has no running, ending or uncounted pods.
func validateNoPodsLeft(s *batchv1.JobStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Active > 0 {
		errs = append(errs, field.Invalid(path.Child("active"), s.Active, "active>0 is invalid for finished job"))
	}
	if n := validate.Deref(s.Terminating); n > 0 {
		errs = append(errs, field.Invalid(path.Child("terminating"), n, "terminating>0 is invalid for finished job"))
	}
	if u := s.UncountedTerminatedPods; u != nil && len(u.Failed)+len(u.Succeeded) > 0 {
		errs = append(errs, field.Invalid(path.Child("uncountedTerminatedPods"), u, "must be empty for finished job"))
	}
	return errs
}
