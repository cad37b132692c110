package job

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	// Minimal machines have no time zone database, which CronJobs with a time zone need.
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/resource/batch"
)

// CronJob creates Jobs on a schedule.
var CronJob = controller.Starter{Name: "cronjob-controller", Run: runCronJobs}

var (
	cronKind = batchv1.SchemeGroupVersion.WithKind("CronJob")
	// lateBy is added to the time of the next run, so that the clock has surely passed it.
	lateBy = 100 * time.Millisecond
)

// manyMissed is the number of missed runs above which a warning is sent.
const manyMissed = 100

type cronJobs struct {
	env   controller.Env
	crons client.ViewOf[*batchv1.CronJob]
	jobs  client.ViewOf[*batchv1.Job]
	now   func() time.Time
}

func runCronJobs(ctx context.Context, env controller.Env) error {
	crons, err := client.Open[*batchv1.CronJob](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open cron jobs: %w", err)
	}
	jobs, err := client.Open[*batchv1.Job](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open jobs: %w", err)
	}
	controller.IndexOwners(jobs)
	c := &cronJobs{env: env, crons: crons, jobs: jobs, now: env.Now}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "cronjob-controller",
		Inputs: []controller.Input{
			controller.Self(crons),
			controller.On(jobs, controller.States(func(j *batchv1.Job) []controller.Key { return controller.OwnerKeys(j, cronKind) })),
		},
		Workers:   5,
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

func (c *cronJobs) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	shared, ok := c.crons.Get(key.Namespace, key.Name)
	if !ok || shared.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	t := &cronRound{cronJobs: c, cron: shared.DeepCopy(), now: c.now()}
	t.trackActive()
	err := t.trimHistory(ctx)
	var after time.Duration
	if err == nil {
		after, err = t.start(ctx)
	}
	if !equality.Semantic.DeepEqual(shared.Status, t.cron.Status) {
		if _, writeErr := client.UpdateStatus(ctx, c.env.Client, t.cron); writeErr != nil && !apierrors.IsNotFound(writeErr) {
			return controller.Result{}, writeErr
		}
	}
	if apierrors.IsNotFound(err) || controller.NamespaceTerminating(err) {
		err = nil
	}
	return controller.Result{After: after}, err
}

// cronRound is the work of one call; cron is a private copy.
type cronRound struct {
	*cronJobs
	cron *batchv1.CronJob
	now  time.Time
}

func (t *cronRound) event(eventType, reason, action, note string, args ...any) {
	t.env.Events.Eventf(t.cron, nil, eventType, reason, action, note, args...)
}

// trackActive maintains status.active by removing jobs that are finished or gone.
func (t *cronRound) trackActive() {
	status := &t.cron.Status
	for _, j := range controller.Controlled(t.jobs, t.cron.UID) {
		i := slices.IndexFunc(status.Active, func(r corev1.ObjectReference) bool { return r.UID == j.UID })
		end := finished(j)
		switch {
		case i < 0 && end == nil:
			t.event(corev1.EventTypeWarning, "UnexpectedJob", "Track", "Saw a job that the controller did not create or forgot: %s", j.Name)
		case i >= 0 && end != nil:
			status.Active = slices.Delete(status.Active, i, i+1)
			t.event(corev1.EventTypeNormal, "SawCompletedJob", "Track", "Saw completed job: %s, condition: %v", j.Name, end.Type)
		}
		if end != nil && end.Type == batchv1.JobComplete && j.Status.CompletionTime != nil &&
			(status.LastSuccessfulTime == nil || j.Status.CompletionTime.After(status.LastSuccessfulTime.Time)) {
			status.LastSuccessfulTime = j.Status.CompletionTime
		}
	}
	status.Active = slices.DeleteFunc(status.Active, func(r corev1.ObjectReference) bool {
		j, ok := t.jobs.Get(t.cron.Namespace, r.Name)
		if ok && j.UID == r.UID {
			return false
		}
		t.event(corev1.EventTypeNormal, "MissingJob", "Track", "Active job went missing: %v", r.Name)
		return true
	})
}

// trimHistory deletes the oldest finished jobs beyond the limits.
func (t *cronRound) trimHistory(ctx context.Context) error {
	ended := map[batchv1.JobConditionType][]*batchv1.Job{}
	for _, j := range controller.Controlled(t.jobs, t.cron.UID) {
		if end := finished(j); end != nil && j.DeletionTimestamp == nil {
			ended[end.Type] = append(ended[end.Type], j)
		}
	}
	for kind, limit := range map[batchv1.JobConditionType]*int32{batchv1.JobComplete: t.cron.Spec.SuccessfulJobsHistoryLimit, batchv1.JobFailed: t.cron.Spec.FailedJobsHistoryLimit} {
		jobs := ended[kind]
		if limit == nil || len(jobs) <= int(*limit) {
			continue
		}
		slices.SortFunc(jobs, func(a, b *batchv1.Job) int {
			if c := startOf(a).Compare(startOf(b)); c != 0 {
				return c
			}
			return strings.Compare(a.Name, b.Name)
		})
		for _, j := range jobs[:len(jobs)-int(*limit)] {
			if err := t.delete(ctx, j); err != nil {
				return err
			}
		}
	}
	return nil
}

func startOf(j *batchv1.Job) time.Time {
	if j.Status.StartTime != nil {
		return j.Status.StartTime.Time
	}
	return j.CreationTimestamp.Time
}

func (t *cronRound) delete(ctx context.Context, j *batchv1.Job) error {
	policy := metav1.DeletePropagationBackground
	err := client.Delete[*batchv1.Job](ctx, t.env.Client, j.Namespace, j.Name, metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &j.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		t.event(corev1.EventTypeWarning, "FailedDelete", "Delete", "Deleted job: %v", err)
		return err
	}
	t.cron.Status.Active = slices.DeleteFunc(t.cron.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == j.UID })
	t.event(corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "Deleted job %v", j.Name)
	return nil
}

// start creates the job that is due, if any, and returns the time until the next.
func (t *cronRound) start(ctx context.Context) (time.Duration, error) {
	if t.cron.Spec.Suspend != nil && *t.cron.Spec.Suspend {
		return 0, nil
	}
	schedule, ok := t.schedule()
	if !ok {
		return 0, nil // until the spec changes
	}
	due, missed := lastDue(t.cron, schedule, t.now)
	next := schedule.Next(t.now)
	if next.IsZero() && due.IsZero() { // a time that never comes, such as 31 February
		t.event(corev1.EventTypeWarning, "InvalidSchedule", "Schedule", "invalid schedule: %s : time difference between two schedules is less than 1 second", t.cron.Spec.Schedule)
		return 0, nil // until the spec changes
	}
	var until time.Duration
	if !next.IsZero() {
		until = next.Sub(t.now) + lateBy
	}
	if missed {
		t.event(corev1.EventTypeWarning, "TooManyMissedTimes", "Schedule", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	if due.IsZero() {
		return until, nil
	}
	if deadline := t.cron.Spec.StartingDeadlineSeconds; deadline != nil && due.Add(time.Duration(*deadline)*time.Second).Before(t.now) {
		t.event(corev1.EventTypeWarning, "MissSchedule", "Schedule", "Missed scheduled time to start a job: %s", due.UTC().Format(time.RFC1123Z))
		return until, nil
	}
	name := fmt.Sprintf("%s-%d", t.cron.Name, due.Unix()/60)
	if slices.ContainsFunc(t.cron.Status.Active, func(r corev1.ObjectReference) bool { return r.Name == name }) || (t.cron.Status.LastScheduleTime != nil && t.cron.Status.LastScheduleTime.Time.Equal(due)) {
		return until, nil
	}
	if len(t.cron.Status.Active) > 0 {
		switch t.cron.Spec.ConcurrencyPolicy {
		case batchv1.ForbidConcurrent:
			t.event(corev1.EventTypeNormal, "JobAlreadyActive", "Schedule", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return until, nil
		case batchv1.ReplaceConcurrent:
			for _, r := range slices.Clone(t.cron.Status.Active) {
				if j, ok := t.jobs.Get(t.cron.Namespace, r.Name); ok && j.UID == r.UID {
					if err := t.delete(ctx, j); err != nil {
						return 0, err
					}
				}
			}
		}
	}
	return until, t.create(ctx, name, due)
}

// schedule parses the schedule in its time zone. It sends an Event if the schedule is invalid.
func (t *cronRound) schedule() (cron.Schedule, bool) {
	text := t.cron.Spec.Schedule
	if strings.Contains(text, "TZ") {
		t.event(corev1.EventTypeWarning, "UnsupportedSchedule", "Schedule", "CRON_TZ or TZ used in schedule %q is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", text)
	}
	if zone := t.cron.Spec.TimeZone; zone != nil {
		if _, err := time.LoadLocation(*zone); err != nil {
			t.event(corev1.EventTypeWarning, "UnknownTimeZone", "Schedule", "invalid timeZone: %q: %s", *zone, err)
			return nil, false
		}
		text = "TZ=" + *zone + " " + text
	}
	schedule, err := batch.ParseSchedule(text)
	if err != nil {
		t.event(corev1.EventTypeWarning, "UnparseableSchedule", "Schedule", "unparseable schedule: %q : %s", t.cron.Spec.Schedule, err)
		return nil, false
	}
	return schedule, true
}

// lastDue returns the latest start time since the last run and within the starting deadline; zero
// if there is none. missed reports that more than manyMissed runs were missed.
func lastDue(c *batchv1.CronJob, schedule cron.Schedule, now time.Time) (due time.Time, missed bool) {
	since := c.CreationTimestamp.Time
	if c.Status.LastScheduleTime != nil {
		since = c.Status.LastScheduleTime.Time
	}
	if d := c.Spec.StartingDeadlineSeconds; d != nil {
		if earliest := now.Add(-time.Duration(*d) * time.Second); earliest.After(since) {
			since = earliest
		}
	}
	count := 0
	for t := schedule.Next(since); !t.IsZero() && !t.After(now); t = schedule.Next(t) {
		due = t
		if count++; count > manyMissed {
			missed = true
			break
		}
	}
	// Do not step through years of missed runs. Look back from now, twice as far each time.
	for back := time.Minute; missed && !now.Add(-back).Before(due); back *= 2 {
		if t := schedule.Next(now.Add(-back)); t.After(now) {
			continue
		}
		for t := schedule.Next(now.Add(-back)); !t.After(now); t = schedule.Next(t) {
			due = t
		}
		break
	}
	return due, missed
}

func (t *cronRound) create(ctx context.Context, name string, due time.Time) error {
	stamp := due
	if zone := t.cron.Spec.TimeZone; zone != nil {
		if l, err := time.LoadLocation(*zone); err == nil {
			stamp = due.In(l)
		}
	}
	template := t.cron.Spec.JobTemplate.DeepCopy()
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.cron.Namespace, Name: name,
			Labels:          maps.Clone(template.Labels),
			Annotations:     with(template.Annotations, batchv1.CronJobScheduledTimestampAnnotation, stamp.Format(time.RFC3339)),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(t.cron, cronKind)},
		},
		Spec: template.Spec,
	}
	created, err := client.Create(ctx, t.env.Client, j)
	switch {
	case apierrors.IsAlreadyExists(err):
		have, getErr := client.Get[*batchv1.Job](ctx, t.env.Client, j.Namespace, j.Name)
		if getErr != nil {
			return getErr
		}
		if ref := metav1.GetControllerOfNoCopy(have); ref == nil || ref.UID != t.cron.UID {
			return controller.Terminal(fmt.Errorf("cron job %s/%s: job %s exists and is not its own", t.cron.Namespace, t.cron.Name, name))
		}
		created = have
	case err != nil:
		if !controller.NamespaceTerminating(err) {
			t.event(corev1.EventTypeWarning, "FailedCreate", "Create", "Error creating job: %v", err)
		}
		return err
	default:
		t.event(corev1.EventTypeNormal, "SuccessfulCreate", "Create", "Created job %v", created.Name)
	}
	t.cron.Status.LastScheduleTime = &metav1.Time{Time: due}
	if finished(created) != nil {
		return nil
	}
	t.cron.Status.Active = append(t.cron.Status.Active, corev1.ObjectReference{
		APIVersion: "batch/v1", Kind: "Job", Namespace: created.Namespace, Name: created.Name, UID: created.UID, ResourceVersion: created.ResourceVersion,
	})
	return nil
}
