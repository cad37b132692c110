package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of jobs, as the API reference gives them.
const (
	maxIndexedParallelism      = 100_000
	maxIndexedFailures         = 100_000
	highCompletions            = 100_000
	maxParallelismAboveHigh    = 10_000
	maxFailedIndexesAboveHigh  = 10_000
	maxPolicyRules             = 20
	maxPolicyExitCodes         = 255
	maxPolicyConditionPatterns = 20
	maxSucceededIndexesLength  = 64 * 1024
	maxManagedByLength         = 63
)

func validateJob(j *batchv1.Job) field.ErrorList {
	errs := validateGeneratedSelector(j)
	errs = append(errs, validateJobSpec(&j.Spec, specPath)...)
	if n := deref(j.Spec.Completions); indexed(&j.Spec) && n > 0 {
		// The last pod's host name is the longest.
		last := fmt.Sprintf("%s-%d", j.Name, n-1)
		if len(validation.IsDNS1123Label(last)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata").Child("name"), j.Name,
				fmt.Sprintf("will not able to create pod with invalid DNS label: %s", last)))
		}
	}
	return errs
}

func indexed(spec *batchv1.JobSpec) bool {
	return deref(spec.CompletionMode) == batchv1.IndexedCompletion
}

// validateGeneratedSelector checks that the labels that PrepareCreate has generated are there: the user may have given others by
// the same names.
func validateGeneratedSelector(j *batchv1.Job) field.ErrorList {
	if deref(j.Spec.ManualSelector) || j.Spec.Selector == nil {
		return nil
	}
	if j.UID == "" {
		return field.ErrorList{field.Required(field.NewPath("metadata").Child("uid"), "")}
	}
	meta := specPath.Child("template", "metadata")
	wanted := labels.Set{}
	var errs field.ErrorList
	for _, l := range []struct{ key, value string }{
		{oldControllerUIDLabel, string(j.UID)}, {oldJobNameLabel, j.Name}, {batchv1.ControllerUidLabel, string(j.UID)}, {batchv1.JobNameLabel, j.Name},
	} {
		wanted[l.key] = l.value
		path := meta.Child("labels").Key(l.key)
		switch value, ok := j.Spec.Template.Labels[l.key]; {
		case !ok:
			errs = append(errs, field.Required(path, fmt.Sprintf("must be '%s'", l.value)))
		case value != l.value:
			errs = append(errs, field.Invalid(path, j.Spec.Template.Labels, fmt.Sprintf("must be '%s'", l.value)))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(wanted) {
		errs = append(errs, field.Invalid(specPath.Child("selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

func validateJobSpec(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := validateJobTemplateSpec(spec, path)
	if spec.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	} else {
		errs = append(errs, validateSelector(spec.Selector, path.Child("selector"))...)
	}
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !selector.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, mismatch))
	}
	return errs
}

// validateJobTemplateSpec checks what jobs and cron jobs' templates of jobs share.
func validateJobTemplateSpec(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := optionalNonNegative(spec.Parallelism, path.Child("parallelism"))
	errs = append(errs, optionalNonNegative(spec.Completions, path.Child("completions"))...)
	errs = append(errs, optionalNonNegative(spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds"))...)
	errs = append(errs, optionalNonNegative(spec.BackoffLimit, path.Child("backoffLimit"))...)
	errs = append(errs, optionalNonNegative(spec.TTLSecondsAfterFinished, path.Child("ttlSecondsAfterFinished"))...)
	errs = append(errs, optionalNonNegative(spec.BackoffLimitPerIndex, path.Child("backoffLimitPerIndex"))...)
	if most := spec.MaxFailedIndexes; most != nil {
		errs = append(errs, validateNonNegative(int64(*most), path.Child("maxFailedIndexes"))...)
		if spec.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
		}
	}
	if by := spec.ManagedBy; by != nil {
		errs = append(errs, validation.IsDomainPrefixedPath(path.Child("managedBy"), *by)...)
		if len(*by) > maxManagedByLength {
			errs = append(errs, field.TooLong(path.Child("managedBy"), *by, maxManagedByLength))
		}
	}
	errs = append(errs, validateCompletionMode(spec, path)...)
	if spec.PodFailurePolicy != nil {
		errs = append(errs, validateFailurePolicy(spec, path.Child("podFailurePolicy"))...)
	}
	if spec.SuccessPolicy != nil {
		if indexed(spec) {
			errs = append(errs, validateSuccessPolicy(spec, path.Child("successPolicy"))...)
		} else {
			errs = append(errs, field.Invalid(path.Child("successPolicy"), spec.SuccessPolicy, "requires indexed completion mode"))
		}
	}
	if p := spec.PodReplacementPolicy; p != nil {
		if spec.PodFailurePolicy != nil {
			errs = append(errs, notSupportedUnless(*p, path.Child("podReplacementPolicy"), batchv1.Failed)...)
		} else {
			errs = append(errs, notSupportedUnless(*p, path.Child("podReplacementPolicy"), batchv1.Failed, batchv1.TerminatingOrFailed)...)
		}
	}
	errs = append(errs, validatePodTemplate(&spec.Template, path.Child("template"))...)
	return append(errs, validateJobRestart(spec, path.Child("template", "spec", "restartPolicy"))...)
}

// validateJobRestart: pods of jobs end; what restarts them, if anything, is the job.
func validateJobRestart(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	policy := spec.Template.Spec.RestartPolicy
	var errs field.ErrorList
	switch policy {
	case corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever:
	case corev1.RestartPolicyAlways, "": // Always is what it defaults to
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))}
	default:
		errs = append(errs, field.NotSupported(path, policy, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	}
	if spec.PodFailurePolicy != nil && policy == corev1.RestartPolicyOnFailure {
		errs = append(errs, field.Invalid(path, policy, fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever)))
	}
	return errs
}

func validateCompletionMode(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if mode := spec.CompletionMode; mode != nil {
		errs = notSupportedUnless(*mode, path.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
	}
	if spec.CompletionMode == nil || *spec.CompletionMode == batchv1.NonIndexedCompletion {
		const needed = "requires indexed completion mode"
		if spec.BackoffLimitPerIndex != nil {
			errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *spec.BackoffLimitPerIndex, needed))
		}
		if spec.MaxFailedIndexes != nil {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *spec.MaxFailedIndexes, needed))
		}
		return errs
	}
	if !indexed(spec) {
		return errs
	}
	if spec.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion)))
	}
	if n := spec.Parallelism; n != nil && *n > maxIndexedParallelism {
		errs = append(errs, field.Invalid(path.Child("parallelism"), *n,
			fmt.Sprintf("must be less than or equal to %d when completion mode is %s", maxIndexedParallelism, batchv1.IndexedCompletion)))
	}
	most := spec.MaxFailedIndexes
	if spec.Completions != nil && most != nil && *most > *spec.Completions {
		errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *most, "must be less than or equal to completions"))
	}
	if most != nil && *most > maxIndexedFailures {
		errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *most, fmt.Sprintf("must be less than or equal to %d", maxIndexedFailures)))
	}
	if deref(spec.Completions) > highCompletions && spec.BackoffLimitPerIndex != nil {
		const above = "must be less than or equal to %d when completions are above %d and used with backoff limit per index"
		switch {
		case most == nil:
			errs = append(errs, field.Required(path.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", highCompletions)))
		case *most > maxFailedIndexesAboveHigh:
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *most, fmt.Sprintf(above, maxFailedIndexesAboveHigh, highCompletions)))
		}
		if n := spec.Parallelism; n != nil && *n > maxParallelismAboveHigh {
			errs = append(errs, field.Invalid(path.Child("parallelism"), *n, fmt.Sprintf(above, maxParallelismAboveHigh, highCompletions)))
		}
	}
	return errs
}

// quoted lists allowed values as messages have them.
func quoted[T ~string](values ...T) string { return fmt.Sprintf("valid values: %q", values) }

func validateFailurePolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	rules := path.Child("rules")
	var errs field.ErrorList
	if n := len(spec.PodFailurePolicy.Rules); n > maxPolicyRules {
		errs = append(errs, field.TooMany(rules, n, maxPolicyRules))
	}
	names := map[string]bool{}
	for _, c := range spec.Template.Spec.Containers {
		names[c.Name] = true
	}
	for _, c := range spec.Template.Spec.InitContainers {
		names[c.Name] = true
	}
	for i := range spec.PodFailurePolicy.Rules {
		errs = append(errs, validateFailureRule(spec, &spec.PodFailurePolicy.Rules[i], names, rules.Index(i))...)
	}
	return errs
}

func validateFailureRule(spec *batchv1.JobSpec, r *batchv1.PodFailurePolicyRule, names map[string]bool, path *field.Path) field.ErrorList {
	actions := []batchv1.PodFailurePolicyAction{
		batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore,
	}
	action := path.Child("action")
	var errs field.ErrorList
	switch {
	case r.Action == "":
		errs = append(errs, field.Required(action, quoted(actions...)))
	case r.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil:
		errs = append(errs, field.Invalid(action, r.Action, "requires the backoffLimitPerIndex to be set"))
	case !slices.Contains(actions, r.Action):
		errs = append(errs, field.NotSupported(action, r.Action, actions))
	}
	if r.OnExitCodes != nil {
		errs = append(errs, validateExitCodes(r.OnExitCodes, names, path.Child("onExitCodes"))...)
	}
	conditions := path.Child("onPodConditions")
	if n := len(r.OnPodConditions); n > maxPolicyConditionPatterns {
		errs = append(errs, field.TooMany(conditions, n, maxPolicyConditionPatterns))
	}
	for i, p := range r.OnPodConditions {
		errs = append(errs, validateQualified(string(p.Type), conditions.Index(i).Child("type"))...)
		errs = append(errs, oneOfQuoted(p.Status, conditions.Index(i).Child("status"), corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
	}
	switch {
	case r.OnExitCodes != nil && len(r.OnPodConditions) > 0:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case r.OnExitCodes == nil && len(r.OnPodConditions) == 0:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	return errs
}

// oneOfQuoted refuses what is not allowed; when the value is missing it says what is.
func oneOfQuoted[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, quoted(allowed...))}
	}
	return notSupportedUnless(value, path, allowed...)
}

func validateExitCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, names map[string]bool, path *field.Path) field.ErrorList {
	errs := oneOfQuoted(r.Operator, path.Child("operator"), batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if r.ContainerName != nil && !names[*r.ContainerName] {
		errs = append(errs, field.Invalid(path.Child("containerName"), *r.ContainerName, "must be one of the container or initContainer names in the pod template"))
	}
	values := path.Child("values")
	switch n := len(r.Values); {
	case n == 0:
		errs = append(errs, field.Invalid(values, r.Values, "at least one value is required"))
	case n > maxPolicyExitCodes:
		errs = append(errs, field.TooMany(values, n, maxPolicyExitCodes))
	}
	ordered, seen := true, map[int32]bool{}
	for i, v := range r.Values {
		if v == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(values.Index(i), v, "must not be 0 for the In operator"))
		}
		if seen[v] {
			errs = append(errs, field.Duplicate(values.Index(i), v))
		}
		seen[v] = true
		ordered = ordered && (i == 0 || r.Values[i-1] <= v)
	}
	if !ordered {
		errs = append(errs, field.Invalid(values, r.Values, "must be ordered"))
	}
	return errs
}

func validateSuccessPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	rules := path.Child("rules")
	var errs field.ErrorList
	switch n := len(spec.SuccessPolicy.Rules); {
	case n == 0:
		errs = append(errs, field.Required(rules, "at least one rules must be specified when the successPolicy is specified"))
	case n > maxPolicyRules:
		errs = append(errs, field.TooMany(rules, n, maxPolicyRules))
	}
	completions := deref(spec.Completions)
	for i, r := range spec.SuccessPolicy.Rules {
		rule := rules.Index(i)
		if r.SucceededCount == nil && r.SucceededIndexes == nil {
			errs = append(errs, field.Required(rule, "at least one of succeededCount or succeededIndexes must be specified"))
		}
		total := int32(-1)
		if text := r.SucceededIndexes; text != nil {
			if len(*text) > maxSucceededIndexesLength {
				errs = append(errs, field.TooLong(rule.Child("succeededIndexes"), *text, maxSucceededIndexesLength))
			}
			n, err := countIndexes(*text, completions)
			if err != nil {
				errs = append(errs, field.Invalid(rule.Child("succeededIndexes"), *text, fmt.Sprintf("error parsing succeededIndexes: %s", err)))
			}
			total = n
		}
		if n := r.SucceededCount; n != nil {
			path := rule.Child("succeededCount")
			errs = append(errs, validateNonNegative(int64(*n), path)...)
			if *n > completions {
				errs = append(errs, field.Invalid(path, *n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions)))
			}
			if total >= 0 && *n > total {
				errs = append(errs, field.Invalid(path, *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total)))
			}
		}
	}
	return errs
}

// indexRange is an interval of a job's indexes, both ends in it.
type indexRange struct{ first, last int32 }

// countIndexes counts the indexes of a list.
func countIndexes(text string, completions int32) (total int32, err error) {
	ranges, err := parseIndexes(text, completions)
	for _, r := range ranges {
		total += r.last - r.first + 1
	}
	return total, err
}

// parseIndexes reads a list such as "1,3-5,7". Indexes must ascend and be less than completions.
func parseIndexes(text string, completions int32) ([]indexRange, error) {
	if text == "" {
		return nil, nil
	}
	var ranges []indexRange
	last := int32(-1)
	for _, interval := range strings.Split(text, ",") {
		limits := strings.Split(interval, "-")
		if len(limits) > 2 {
			return nil, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", interval)
		}
		first, err := strconv.Atoi(limits[0])
		if err != nil {
			return nil, fmt.Errorf("cannot convert string to integer for index: %q", limits[0])
		}
		if int32(first) >= completions {
			return nil, fmt.Errorf("too large index: %q", limits[0])
		}
		if int32(first) <= last {
			return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, first)
		}
		end := first
		if len(limits) == 2 {
			if end, err = strconv.Atoi(limits[1]); err != nil {
				return nil, fmt.Errorf("cannot convert string to integer for index: %q", limits[1])
			}
			if int32(end) >= completions {
				return nil, fmt.Errorf("too large index: %q", limits[1])
			}
			if first >= end {
				return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", first, end)
			}
		}
		ranges = append(ranges, indexRange{int32(first), int32(end)})
		last = int32(end)
	}
	return ranges, nil
}

func validateJobUpdate(j, old *batchv1.Job) field.ErrorList {
	errs := validateGeneratedSelector(j)
	errs = append(errs, validateJobSpec(&j.Spec, specPath)...)
	errs = append(errs, validateCompletionsUpdate(&j.Spec, &old.Spec, specPath)...)
	errs = append(errs, validateImmutable(j.Spec.Selector, old.Spec.Selector, specPath.Child("selector"))...)
	errs = append(errs, validateJobPodsUpdate(j, old)...)
	errs = append(errs, validateImmutable(j.Spec.CompletionMode, old.Spec.CompletionMode, specPath.Child("completionMode"))...)
	errs = append(errs, validateImmutable(j.Spec.PodFailurePolicy, old.Spec.PodFailurePolicy, specPath.Child("podFailurePolicy"))...)
	errs = append(errs, validateImmutable(j.Spec.BackoffLimitPerIndex, old.Spec.BackoffLimitPerIndex, specPath.Child("backoffLimitPerIndex"))...)
	errs = append(errs, validateImmutable(j.Spec.ManagedBy, old.Spec.ManagedBy, specPath.Child("managedBy"))...)
	return append(errs, validateImmutable(j.Spec.SuccessPolicy, old.Spec.SuccessPolicy, specPath.Child("successPolicy"))...)
}

// validateCompletionsUpdate lets an indexed job grow and shrink with its parallelism.
func validateCompletionsUpdate(spec, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if equalPointers(spec.Completions, old.Completions) {
		return nil
	}
	if !indexed(spec) || spec.Completions == nil || old.Completions == nil {
		return validateImmutable(spec.Completions, old.Completions, path.Child("completions"))
	}
	if !equalPointers(spec.Completions, spec.Parallelism) {
		return field.ErrorList{field.Invalid(path.Child("completions"), *spec.Completions, fmt.Sprintf("can only be modified in tandem with %s", path.Child("parallelism")))}
	}
	return nil
}

// validateJobPodsUpdate: the pods of a job are all alike, so their template stays; where they may run, and what they get there, may change while the job
// is suspended.
func validateJobPodsUpdate(j, old *batchv1.Job) field.ErrorList {
	template, before := j.Spec.Template.DeepCopy(), &old.Spec.Template
	suspended := deref(old.Spec.Suspend)
	if suspended && old.Status.Active == 0 && (old.Status.StartTime == nil || jobSuspended(old)) {
		spec := &template.Spec
		if spec.Affinity != nil {
			spec.Affinity.NodeAffinity = nil
		}
		if a := before.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			if spec.Affinity == nil {
				spec.Affinity = &corev1.Affinity{}
			}
			spec.Affinity.NodeAffinity = a.NodeAffinity
		} else if spec.Affinity != nil && *spec.Affinity == (corev1.Affinity{}) {
			spec.Affinity = before.Spec.Affinity
		}
		spec.NodeSelector, spec.Tolerations, spec.SchedulingGates = before.Spec.NodeSelector, before.Spec.Tolerations, before.Spec.SchedulingGates
		template.Annotations, template.Labels = before.Annotations, before.Labels
		keepResources(spec.Containers, before.Spec.Containers)
		keepResources(spec.InitContainers, before.Spec.InitContainers)
		return validateImmutable(*spec, before.Spec, specPath.Child("template", "spec"))
	}
	return validateImmutable(*template, *before, specPath.Child("template"))
}

func jobSuspended(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
	})
}

func keepResources(containers, before []corev1.Container) {
	if len(containers) != len(before) {
		return
	}
	for i := range containers {
		containers[i].Resources = before[i].Resources
	}
}
