package batch

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func CronJobStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultCronJob)
	s.ValidateCreate = strategy.Checks(validateCronJob)
	s.ValidateUpdate = strategy.ChecksBoth(validateCronJobUpdate)
	return strategy.Show(pods.WithTemplateRules(s, indexedWarnings), cronJobColumns, cronJobRow)
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
	pods.DefaultTemplate(&job.Template)
}

// maxCronJobName leaves room for the time that the names of its jobs append.
const maxCronJobName = validation.DNS1035LabelMaxLength - 11

func validateCronJob(c *batchv1.CronJob) field.ErrorList {
	errs := validateCronJobSpec(&c.Spec, nil, validate.SpecPath)
	if len(c.Name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata").Child("name"), c.Name, "must be no more than 52 characters"))
	}
	return errs
}

// validateCronJobUpdate does not check the name's length, because the object already exists.
func validateCronJobUpdate(c, old *batchv1.CronJob) field.ErrorList {
	return validateCronJobSpec(&c.Spec, &old.Spec, validate.SpecPath)
}

func validateCronJobSpec(spec, old *batchv1.CronJobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.Schedule == "" {
		errs = append(errs, field.Required(path.Child("schedule"), ""))
	} else {
		hadZone := old != nil && strings.Contains(old.Schedule, "TZ")
		errs = append(errs, validateSchedule(spec, hadZone, path.Child("schedule"))...)
	}
	errs = append(errs, validate.OptionalNonNegative(spec.StartingDeadlineSeconds, path.Child("startingDeadlineSeconds"))...)
	if old == nil || !validate.EqualPointers(spec.TimeZone, old.TimeZone) {
		errs = append(errs, validateTimeZone(spec.TimeZone, path.Child("timeZone"))...)
	}
	errs = append(errs, validate.OneOf(spec.ConcurrencyPolicy, path.Child("concurrencyPolicy"), batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	errs = append(errs, validateJobOfCronJob(&spec.JobTemplate.Spec, path.Child("jobTemplate", "spec"))...)
	errs = append(errs, validate.OptionalNonNegative(spec.SuccessfulJobsHistoryLimit, path.Child("successfulJobsHistoryLimit"))...)
	return append(errs, validate.OptionalNonNegative(spec.FailedJobsHistoryLimit, path.Child("failedJobsHistoryLimit"))...)
}

func validateJobOfCronJob(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := validateJobTemplateSpec(spec, path)
	if spec.Selector != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), spec.Selector, "`selector` will be auto-generated"))
	}
	if validate.Deref(spec.ManualSelector) {
		errs = append(errs, field.NotSupported(path.Child("manualSelector"), spec.ManualSelector, []string{"nil", "false"}))
	}
	return errs
}

func validateSchedule(spec *batchv1.CronJobSpec, allowZone bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, err := ParseSchedule(spec.Schedule); err != nil {
		errs = append(errs, field.Invalid(path, spec.Schedule, err.Error()))
	}
	switch {
	case strings.Contains(spec.Schedule, "TZ") && spec.TimeZone != nil:
		errs = append(errs, field.Invalid(path, spec.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	case strings.Contains(spec.Schedule, "TZ") && !allowZone:
		errs = append(errs, field.Invalid(path, spec.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	}
	return errs
}

// ParseSchedule parses a cron job's schedule. The library panics on a time zone without a schedule
// after it.
func ParseSchedule(text string) (cron.Schedule, error) {
	if (strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=")) && !strings.Contains(text, " ") {
		return nil, errors.New("expected exactly 5 fields, found 0: []")
	}
	return cron.ParseStandard(text)
}

var zoneName = regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)

func validateTimeZone(zone *string, path *field.Path) field.ErrorList {
	if zone == nil {
		return nil
	}
	if *zone == "" {
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	}
	for _, part := range strings.Split(*zone, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zoneName.MatchString(part) {
			return field.ErrorList{field.Invalid(path, zone, "unknown time zone "+*zone)}
		}
	}
	if strings.EqualFold(*zone, "Local") {
		return field.ErrorList{field.Invalid(path, zone, "must be an explicit time zone as defined in https://www.iana.org/time-zones")}
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		return field.ErrorList{field.Invalid(path, zone, err.Error())}
	}
	return nil
}

var cronJobColumns = columns.Define("Name", "Schedule@spec.schedule", "Timezone@spec.timeZone", "Suspend:boolean@spec.suspend", "Active:integer@status.active", "Last Schedule@status.lastScheduleTime", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.jobTemplate.spec.selector")

func cronJobRow(c *batchv1.CronJob, now metav1.Time) []any {
	last := columns.None
	if t := c.Status.LastScheduleTime; t != nil {
		last = columns.Age(*t, now)
	}
	job := &c.Spec.JobTemplate.Spec
	return []any{
		c.Name, c.Spec.Schedule, columns.OrNone(validate.Deref(c.Spec.TimeZone)), columns.Title(validate.Deref(c.Spec.Suspend)), int64(len(c.Status.Active)), last, columns.AgeOf(c, now),
		pods.ContainerNames(&job.Template.Spec), pods.ContainerImages(&job.Template.Spec), columns.OrNone(columns.SelectorText(job.Selector)),
	}
}
