package why

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Causes of Jobs, CronJobs and autoscalers that do not work.
const (
	causeJobBackoff     = "job-backoff-limit"
	causeJobDeadline    = "job-deadline"
	causeJobPolicy      = "job-pod-failure-policy"
	causeJobFailed      = "job-failed"
	causeJobSuspended   = "job-suspended"
	causeJobPods        = "job-pods"
	causeCronSuspended  = "cronjob-suspended"
	causeCronForbid     = "cronjob-forbids-overlap"
	causeCronMissed     = "cronjob-missed"
	causeCronZone       = "cronjob-time-zone"
	causeCronSchedule   = "cronjob-schedule"
	causeCronLate       = "cronjob-late"
	causeCronJobFailed  = "cronjob-job-failed"
	causeScaleTarget    = "autoscaler-target"
	causeScaleMetrics   = "autoscaler-metrics"
	causeScaleRequests  = "autoscaler-requests"
	causeScaleDisabled  = "autoscaler-disabled"
	causeScaleMaximum   = "autoscaler-maximum"
	causeScaleSelectors = "autoscaler-overlap"
)

// job explains a Job that failed or does not go on.
func job(s *Snapshot, j *batchv1.Job) []Finding {
	pods := ownedPods(s, j.Namespace, j.UID)
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete, batchv1.JobSuccessCriteriaMet:
			return nil
		case batchv1.JobFailed, batchv1.JobFailureTarget:
			return []Finding{failedJob(j, c, pods)}
		}
	}
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		return one(causeJobSuspended, "it is suspended: it starts no pods.", "kubectl patch job "+j.Name+" -n "+j.Namespace+` -p '{"spec":{"suspend":false}}'`)
	}
	var links []Link
	for _, p := range pods {
		if p.Status.Phase == corev1.PodPending || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodRunning && !podReady(p) {
			links = append(links, Link{Object: refTo(p)})
		}
	}
	if len(pods) == 0 {
		if f := failedCreate(s, refTo(j)); f != nil {
			return f
		}
	}
	if len(links) == 0 {
		return nil
	}
	return []Finding{linked(causeJobPods, fmt.Sprintf("%s of it did not succeed, and do not run well.", plural(len(links), "pod")), links...)}
}

func failedJob(j *batchv1.Job, c batchv1.JobCondition, pods []*corev1.Pod) Finding {
	f := Finding{Cause: causeJobFailed, Problem: "it has failed: " + c.Reason + ".", Evidence: []Fact{{Text: oneLine(c.Message)}}}
	switch c.Reason {
	case batchv1.JobReasonBackoffLimitExceeded, "BackoffLimitPerIndexExceeded", batchv1.JobReasonFailedIndexes:
		limit := int32(6)
		if j.Spec.BackoffLimit != nil {
			limit = *j.Spec.BackoffLimit
		}
		f.Cause, f.Problem = causeJobBackoff, fmt.Sprintf("it has failed: its pods failed %s, backoffLimit is %d.", plural(int(j.Status.Failed), "time"), limit)
		f.Remedy = "Repair the program, then create the Job again."
	case batchv1.JobReasonDeadlineExceeded:
		f.Cause, f.Problem, f.Remedy = causeJobDeadline, "it has failed: it ran longer than activeDeadlineSeconds allows.", "Raise activeDeadlineSeconds, or make the work shorter."
		return f
	case batchv1.JobReasonPodFailurePolicy:
		f.Cause, f.Problem = causeJobPolicy, "it has failed: a pod's failure matches its podFailurePolicy."
	}
	for _, p := range pods {
		if p.Status.Phase == corev1.PodFailed {
			f.links = append(f.links, Link{Object: refTo(p)})
		}
	}
	return f
}

// cronJob explains a CronJob that starts no Jobs, or whose newest Job failed.
func cronJob(s *Snapshot, c *batchv1.CronJob) []Finding {
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		return one(causeCronSuspended, "it is suspended: it starts no Jobs.", "kubectl patch cronjob "+c.Name+" -n "+c.Namespace+` -p '{"spec":{"suspend":false}}'`)
	}
	for _, e := range s.events(refTo(c)) {
		f := Finding{Evidence: []Fact{{Text: "event " + e.Reason + ": " + oneLine(e.Message)}}}
		switch e.Reason {
		case "JobAlreadyActive":
			f.Cause, f.Problem, f.Remedy = causeCronForbid, "it skips runs: the last Job still runs, and concurrencyPolicy is Forbid.", "Make the Job shorter, or set concurrencyPolicy: Replace or Allow."
			for _, active := range c.Status.Active {
				f.links = append(f.links, Link{Object: Ref{"Job", c.Namespace, active.Name}})
			}
		case "MissSchedule", "TooManyMissedTimes":
			f.Cause, f.Problem, f.Remedy = causeCronMissed, "it missed runs: startingDeadlineSeconds was over, or the controllers did not run.", "Raise startingDeadlineSeconds."
		case "UnknownTimeZone":
			f.Cause, f.Problem, f.Remedy = causeCronZone, "its timeZone is unknown.", "Set spec.timeZone to a name of the IANA database, such as Europe/Oslo."
		case "UnparseableSchedule", "InvalidSchedule":
			f.Cause, f.Problem, f.Remedy = causeCronSchedule, "its schedule "+c.Spec.Schedule+" is not valid.", "Write it as five fields: minute, hour, day, month, weekday."
		case "FailedCreate":
			f = rejection(s, c.Namespace, e.Message)
			f.Problem = strings.Replace(f.Problem, "its pods are rejected", "its Jobs are rejected", 1)
		case "SuccessfulCreate", "SawCompletedJob":
			return cronJobRuns(s, c)
		default:
			continue
		}
		return []Finding{f}
	}
	return cronJobRuns(s, c)
}

// cronJobRuns explains a CronJob by its newest Job, and by a run that is late.
func cronJobRuns(s *Snapshot, c *batchv1.CronJob) []Finding {
	if f := cronJobLast(s, c); f != nil {
		return f
	}
	due, ok := nextRun(c)
	late := s.Now.Sub(due)
	if !ok || due.IsZero() || late < lateAfter || len(c.Status.Active) > 0 && c.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent {
		return nil
	}
	f := one(causeCronLate, "its run of "+date(due)+" has not begun: it is "+age(late)+" late.", "Check that the controllers run and lead.")
	f[0].links = []Link{{Object: Ref{"Lease", "kube-system", "kube-controller-manager"}, Only: []string{causeLease}}}
	return f
}

// lateAfter is how late a CronJob may start a Job: controllers may be restarted meanwhile.
const lateAfter = 2 * time.Minute

// nextRun returns the first run after the last one. False means that the schedule is not known.
func nextRun(c *batchv1.CronJob) (time.Time, bool) {
	since := c.CreationTimestamp.Time
	if c.Status.LastScheduleTime != nil {
		since = c.Status.LastScheduleTime.Time
	}
	zone := time.UTC
	if c.Spec.TimeZone != nil {
		var err error
		if zone, err = time.LoadLocation(*c.Spec.TimeZone); err != nil {
			return time.Time{}, false
		}
	}
	// The parser fails on a time zone in the schedule without a schedule behind it.
	if since.IsZero() || strings.Contains(c.Spec.Schedule, "TZ") {
		return time.Time{}, false
	}
	schedule, err := cron.ParseStandard(c.Spec.Schedule)
	if err != nil {
		return time.Time{}, false
	}
	return schedule.Next(since.In(zone)), true
}

func cronJobLast(s *Snapshot, c *batchv1.CronJob) []Finding {
	jobs, _ := list[*batchv1.Job](s, c.Namespace)
	var newest *batchv1.Job
	for _, j := range jobs {
		owner := metav1.GetControllerOf(j)
		if owner != nil && owner.UID == c.UID && (newest == nil || newest.CreationTimestamp.Before(&j.CreationTimestamp)) {
			newest = j
		}
	}
	if newest == nil || len(job(s, newest)) == 0 {
		return nil
	}
	return []Finding{linked(causeCronJobFailed, "its newest Job "+newest.Name+" does not succeed.", Link{Object: refTo(newest)})}
}

// autoscaler explains a HorizontalPodAutoscaler that does not scale.
func autoscaler(s *Snapshot, h *autoscalingv2.HorizontalPodAutoscaler) []Finding {
	for _, c := range h.Status.Conditions {
		fact := []Fact{{Text: c.Reason + ": " + oneLine(c.Message)}}
		switch {
		case c.Type == autoscalingv2.AbleToScale && c.Status == corev1.ConditionFalse && c.Reason == "FailedGetScale":
			f := linked(causeScaleTarget, "its target "+strings.ToLower(h.Spec.ScaleTargetRef.Kind)+"/"+h.Spec.ScaleTargetRef.Name+" cannot be scaled.", Link{Object: Ref{h.Spec.ScaleTargetRef.Kind, h.Namespace, h.Spec.ScaleTargetRef.Name}, Only: []string{strings.ToLower(h.Spec.ScaleTargetRef.Kind) + causeAbsent}})
			f.Evidence, f.Remedy = fact, "Correct spec.scaleTargetRef."
			return []Finding{f}
		case c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionFalse:
			return []Finding{inactive(s, c, fact)}
		case c.Type == autoscalingv2.ScalingLimited && c.Status == corev1.ConditionTrue && c.Reason == "TooManyReplicas":
			return []Finding{{Cause: causeScaleMaximum, Problem: fmt.Sprintf("it would start more pods than maxReplicas, %d, allows.", h.Spec.MaxReplicas), Evidence: fact, Remedy: "Raise maxReplicas if the load is real."}}
		}
	}
	return nil
}

func inactive(s *Snapshot, c autoscalingv2.HorizontalPodAutoscalerCondition, fact []Fact) Finding {
	f := Finding{Evidence: fact}
	switch {
	case c.Reason == "ScalingDisabled":
		f.Cause, f.Problem, f.Remedy = causeScaleDisabled, "it does nothing: its target is scaled to 0.", "Scale the target to 1 or more."
	case c.Reason == "AmbiguousSelector":
		f.Cause, f.Problem, f.Remedy = causeScaleSelectors, "the pods of its target belong to another autoscaler too.", "Delete one of the autoscalers, or make their selectors disjoint."
	case strings.Contains(c.Message, "missing request for"):
		f.Cause, f.Problem, f.Remedy = causeScaleRequests, "it compares use with requests, and its pods have no requests for this resource.", "Set resources.requests in the pod template."
	default:
		f.Cause, f.Problem, f.Remedy = causeScaleMetrics, "it gets no metrics.", "Check the metrics API: kubectl get apiservice v1beta1.metrics.k8s.io."
		f.links = []Link{{Object: Ref{"APIService", "", "v1beta1.metrics.k8s.io"}}}
		if _, presence := get[*apiregistrationv1.APIService](s, "", "v1beta1.metrics.k8s.io"); presence == Found {
			f.links[0].Only = apiCauses
		}
	}
	return f
}
