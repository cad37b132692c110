package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/gc"
	"github.com/knarr-project/knarr/internal/controllers/job"
)

func ptr[T any](v T) *T { return &v }

func newJob(name string, change func(*batchv1.JobSpec)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "image:1"}}}},
	}}
	if change != nil {
		change(&j.Spec)
	}
	return j
}

func start(t *testing.T, behave func(*corev1.Pod) bool) *controllertest.Cluster {
	c := controllertest.New(t)
	c.RunPods("node", behave)
	c.Run(job.Job, job.CronJob, job.TTLAfterFinished, gc.Controller)
	return c
}

// succeed makes a pod succeed at once.
func succeed(p *corev1.Pod) bool { return end(p, 0) }

func end(p *corev1.Pod, code int32) bool {
	p.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	p.Status.Conditions = nil
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Image: "image:1", State: corev1.ContainerState{
		// An old end, so that the back-off does not delay the tests.
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(time.Now().Add(-time.Hour))},
	}}}
	return true
}

// finished waits for the condition. It returns the job and that condition.
func finished(t *testing.T, c *controllertest.Cluster, name string, want batchv1.JobConditionType) (*batchv1.Job, batchv1.JobCondition) {
	t.Helper()
	var j *batchv1.Job
	var cond batchv1.JobCondition
	c.Eventually(fmt.Sprintf("job %s becomes %s", name, want), func() string {
		var err error
		if j, err = client.Get[*batchv1.Job](t.Context(), c.Client, "default", name); err != nil {
			return err.Error()
		}
		i := slices.IndexFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == want && c.Status == corev1.ConditionTrue })
		if i < 0 {
			return fmt.Sprintf("%+v", j.Status)
		}
		cond = j.Status.Conditions[i]
		return ""
	})
	return j, cond
}

func TestAJobCompletesAndCountsEachPodOnce(t *testing.T) {
	c := start(t, succeed)
	controllertest.Create(c, newJob("plain", func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = ptr[int32](7), ptr[int32](3) }))
	j, cond := finished(t, c, "plain", batchv1.JobComplete)
	if j.Status.Succeeded != 7 || j.Status.Failed != 0 || j.Status.Active != 0 || j.Status.CompletionTime == nil || cond.Reason != batchv1.JobReasonCompletionsReached {
		t.Errorf("status %+v", j.Status)
	}
	pods := controllertest.List[*corev1.Pod](c)
	if len(pods) != 7 {
		t.Errorf("%d pods, want 7", len(pods))
	}
	for _, p := range pods {
		if len(p.Finalizers) > 0 {
			t.Errorf("pod %s keeps finalizers %v", p.Name, p.Finalizers)
		}
	}
	c.Eventually("an Event reports it", func() string {
		if !slices.Contains(c.Events.List(), "Normal Completed Job completed") {
			return fmt.Sprintf("events %q", c.Events.List())
		}
		return ""
	})
}

func TestAnIndexedJobRunsEachIndex(t *testing.T) {
	c := start(t, succeed)
	controllertest.Create(c, newJob("indexed", func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr(batchv1.IndexedCompletion), ptr[int32](5), ptr[int32](2)
	}))
	j, _ := finished(t, c, "indexed", batchv1.JobComplete)
	if j.Status.CompletedIndexes != "0-4" || j.Status.Succeeded != 5 {
		t.Errorf("status %+v", j.Status)
	}
	for _, p := range controllertest.List[*corev1.Pod](c) {
		index := p.Annotations[batchv1.JobCompletionIndexAnnotation]
		if p.Labels[batchv1.JobCompletionIndexAnnotation] != index || p.Spec.Hostname != "indexed-"+index || !strings.HasPrefix(p.Name, "indexed-"+index+"-") || p.Spec.Containers[0].Env[0].Name != "JOB_COMPLETION_INDEX" {
			t.Errorf("pod %s does not know its index %q", p.Name, index)
		}
	}
}

func TestAJobFailsAtItsBackoffLimit(t *testing.T) {
	c := start(t, func(p *corev1.Pod) bool { return end(p, 1) })
	controllertest.Create(c, newJob("bad", func(s *batchv1.JobSpec) { s.BackoffLimit = ptr[int32](2) }))
	j, cond := finished(t, c, "bad", batchv1.JobFailed)
	if j.Status.Failed != 3 || cond.Reason != batchv1.JobReasonBackoffLimitExceeded || cond.Message != "Job has reached the specified backoff limit" {
		t.Errorf("%+v", j.Status)
	}
	if !slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobFailureTarget }) {
		t.Error("no FailureTarget condition")
	}
}

func TestEachIndexHasABackoffLimitOfItsOwn(t *testing.T) {
	c := start(t, func(p *corev1.Pod) bool {
		if i := p.Annotations[batchv1.JobCompletionIndexAnnotation]; i == "1" || i == "3" {
			return end(p, 1)
		}
		return succeed(p)
	})
	controllertest.Create(c, newJob("per-index", func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism, s.BackoffLimitPerIndex = ptr(batchv1.IndexedCompletion), ptr[int32](4), ptr[int32](4), ptr[int32](1)
	}))
	j, cond := finished(t, c, "per-index", batchv1.JobFailed)
	if cond.Reason != batchv1.JobReasonFailedIndexes || j.Status.CompletedIndexes != "0,2" || j.Status.FailedIndexes == nil || *j.Status.FailedIndexes != "1,3" || j.Status.Failed != 4 || j.Status.Succeeded != 2 {
		t.Errorf("%+v failed %v", j.Status, j.Status.FailedIndexes)
	}
}

func TestThePodFailurePolicyFailsTheJobOrIgnoresThePod(t *testing.T) {
	c := start(t, func(p *corev1.Pod) bool {
		if strings.HasPrefix(p.Name, "fatal") {
			return end(p, 42)
		}
		return succeed(p)
	})
	controllertest.Create(c, newJob("fatal", func(s *batchv1.JobSpec) {
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:      batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}},
		}}}
	}))
	_, cond := finished(t, c, "fatal", batchv1.JobFailed)
	if cond.Reason != batchv1.JobReasonPodFailurePolicy || !strings.HasSuffix(cond.Message, "failed with exit code 42 matching FailJob rule at index 0") {
		t.Errorf("%+v", cond)
	}
}

func TestTheSuccessPolicyEndsAJobEarly(t *testing.T) {
	c := start(t, func(p *corev1.Pod) bool {
		if p.Annotations[batchv1.JobCompletionIndexAnnotation] == "0" {
			return succeed(p)
		}
		return true // keeps running
	})
	controllertest.Create(c, newJob("leader", func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr(batchv1.IndexedCompletion), ptr[int32](3), ptr[int32](3)
		s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr("0")}}}
	}))
	j, cond := finished(t, c, "leader", batchv1.JobComplete)
	if cond.Reason != batchv1.JobReasonSuccessPolicy || j.Status.CompletedIndexes != "0" {
		t.Errorf("%+v", j.Status)
	}
}

func TestSuspendingDeletesPodsAndResumingStartsAnew(t *testing.T) {
	c := start(t, nil)
	controllertest.Create(c, newJob("pausing", func(s *batchv1.JobSpec) { s.Parallelism, s.Suspend = ptr[int32](2), ptr(true) }))
	finished(t, c, "pausing", batchv1.JobSuspended)
	patch := func(data string) {
		if _, err := client.Patch[*batchv1.Job](t.Context(), c.Client, "default", "pausing", types.MergePatchType, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	active := func(want int32) {
		c.Eventually(fmt.Sprintf("%d active", want), func() string {
			j, _ := client.Get[*batchv1.Job](t.Context(), c.Client, "default", "pausing")
			if j.Status.Active != want || len(controllertest.List[*corev1.Pod](c)) != int(want) {
				return fmt.Sprintf("%+v", j.Status)
			}
			return ""
		})
	}
	active(0)
	patch(`{"spec":{"suspend":false}}`)
	active(2)
	patch(`{"spec":{"suspend":true}}`)
	active(0)
}

func TestADeadlineEndsTheJob(t *testing.T) {
	c := start(t, nil)
	controllertest.Create(c, newJob("slow", func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr[int64](1) }))
	_, cond := finished(t, c, "slow", batchv1.JobFailed)
	if cond.Reason != batchv1.JobReasonDeadlineExceeded {
		t.Errorf("%+v", cond)
	}
}

func TestPodsOfADeletedJobLoseTheirFinalizers(t *testing.T) {
	c := start(t, nil)
	controllertest.Create(c, newJob("short", func(s *batchv1.JobSpec) { s.Parallelism = ptr[int32](2) }))
	c.Eventually("pods", func() string {
		if n := len(controllertest.List[*corev1.Pod](c)); n != 2 {
			return fmt.Sprint(n)
		}
		return ""
	})
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground} {
		if err := client.Delete[*batchv1.Job](t.Context(), c.Client, "default", "short", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
	}
	c.Eventually("no pods", func() string {
		if n := len(controllertest.List[*corev1.Pod](c)); n != 0 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

func TestAFinishedJobIsDeletedAfterItsTimeToLive(t *testing.T) {
	c := start(t, succeed)
	controllertest.Create(c, newJob("brief", func(s *batchv1.JobSpec) { s.TTLSecondsAfterFinished = ptr[int32](0) }))
	c.Eventually("the job is deleted", func() string {
		_, err := client.Get[*batchv1.Job](t.Context(), c.Client, "default", "brief")
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint(err)
	})
}

func TestACronJobStartsAJobThatIsDue(t *testing.T) {
	c := start(t, nil)
	cj := controllertest.Create(c, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "tick"}, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent, JobTemplate: batchv1.JobTemplateSpec{Spec: newJob("x", nil).Spec},
	}})
	// The last run was two minutes ago.
	controllertest.Retry(c, cj, func(cj *batchv1.CronJob) {
		cj.Status.LastScheduleTime = &metav1.Time{Time: time.Now().Add(-2 * time.Minute)}
	}, "status")
	c.Eventually("a job is active", func() string {
		cj, _ := client.Get[*batchv1.CronJob](t.Context(), c.Client, "default", "tick")
		jobs := controllertest.List[*batchv1.Job](c)
		if len(cj.Status.Active) != 1 || len(jobs) != 1 || jobs[0].Annotations[batchv1.CronJobScheduledTimestampAnnotation] == "" {
			return fmt.Sprintf("%+v, %d jobs", cj.Status, len(jobs))
		}
		return ""
	})
}

func TestAnImpossibleScheduleCausesAnEvent(t *testing.T) {
	c := start(t, nil)
	controllertest.Create(c, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "never"}, Spec: batchv1.CronJobSpec{
		Schedule: "59 23 31 2 *", ConcurrencyPolicy: batchv1.AllowConcurrent, JobTemplate: batchv1.JobTemplateSpec{Spec: newJob("x", nil).Spec},
	}})
	c.Eventually("an event", func() string {
		if events := c.Events.List(); !slices.ContainsFunc(events, func(e string) bool {
			return strings.HasPrefix(e, "Warning InvalidSchedule invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second")
		}) {
			return fmt.Sprint(events)
		}
		return ""
	})
}
