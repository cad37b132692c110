package job

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/controller"
)

// round is the work of one call on one unfinished job; job is a private copy.
type round struct {
	*jobs
	job   *batchv1.Job
	start time.Time
	old   batchv1.JobStatus // the status as read
	pods  []*corev1.Pod
	// counted holds the pods that count has seen. Only these are accounted for, since a pod that
	// ended later has not been judged.
	counted []*corev1.Pod

	active            []*corev1.Pod
	terminating       int32
	succeeded, failed int32
	succeededIndexes  indexSet
	failedIndexes     indexSet
	// By index: the last failed pod, kept until its successor carries its failure count.
	delayed map[int]*corev1.Pod
	done    *batchv1.JobCondition
	wait    time.Duration
}

func newRound(c *jobs, job *batchv1.Job, pods []*corev1.Pod) *round {
	if job.Status.UncountedTerminatedPods == nil {
		job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	return &round{jobs: c, job: job, pods: pods, old: *job.Status.DeepCopy(), start: c.now()}
}

func (r *round) indexed() bool {
	return r.job.Spec.CompletionMode != nil && *r.job.Spec.CompletionMode == batchv1.IndexedCompletion
}

func (r *round) perIndex() bool { return r.indexed() && r.job.Spec.BackoffLimitPerIndex != nil }

func (r *round) completions() int {
	if r.job.Spec.Completions == nil {
		return 0
	}
	return int(*r.job.Spec.Completions)
}

func (r *round) suspended() bool { return r.job.Spec.Suspend != nil && *r.job.Spec.Suspend }

func (r *round) requeueIn(d time.Duration) {
	if d > 0 && (r.wait == 0 || d < r.wait) {
		r.wait = d
	}
}

// run does the work of one call in order: count, decide whether the job ends, act on its pods,
// account for ended pods, write.
func (r *round) run(ctx context.Context) (controller.Result, error) {
	if r.job.Status.StartTime == nil && !r.suspended() {
		r.job.Status.StartTime = &metav1.Time{Time: r.start}
	}
	r.countFreed()
	r.count()
	r.backoffOf(r.job.UID).countEnded(r.pods, func(p *corev1.Pod) bool { return podFailed(p, r.job) }, r.start)
	r.decide()
	actErr := r.act(ctx)
	r.pods = controller.Controlled(r.jobs.pods, r.job.UID)
	r.countActive()
	if actErr == nil && r.done == nil {
		r.decideCompletion()
		if r.done == nil && r.job.DeletionTimestamp == nil {
			r.recordSuspension()
		}
	}
	if err := r.account(ctx); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{After: r.wait}, actErr
}

// countFreed adds noted pods that have lost their finalizer to the counts.
func (r *round) countFreed() {
	held := map[types.UID]bool{}
	for _, p := range r.pods {
		if tracked(p) {
			held[p.UID] = true
		}
	}
	uncounted := r.job.Status.UncountedTerminatedPods
	var n int32
	uncounted.Succeeded, n = split(uncounted.Succeeded, held)
	r.job.Status.Succeeded += n
	uncounted.Failed, n = split(uncounted.Failed, held)
	r.job.Status.Failed += n
}

// split divides the UIDs: it returns those that are held, and the number of the others.
func split(uids []types.UID, held map[types.UID]bool) (kept []types.UID, n int32) {
	for _, uid := range uids {
		if held[uid] {
			kept = append(kept, uid)
		} else {
			n++
		}
	}
	return kept, n
}

func (r *round) uncounted() map[types.UID]bool {
	noted := map[types.UID]bool{}
	for _, uid := range r.job.Status.UncountedTerminatedPods.Succeeded {
		noted[uid] = true
	}
	for _, uid := range r.job.Status.UncountedTerminatedPods.Failed {
		noted[uid] = true
	}
	return noted
}

func (r *round) countActive() {
	r.active, r.terminating = nil, 0
	for _, p := range r.pods {
		if controller.PodActive(p) {
			r.active = append(r.active, p)
		} else if p.DeletionTimestamp != nil && !controller.PodEnded(p) {
			r.terminating++
		}
	}
}

// count determines how many pods or indexes have succeeded and failed, including those not
// accounted for yet.
func (r *round) count() {
	r.counted = r.pods
	r.countActive()
	noted := r.uncounted()
	status := &r.job.Status
	r.succeeded = status.Succeeded + int32(len(status.UncountedTerminatedPods.Succeeded))
	r.failed = status.Failed + int32(len(status.UncountedTerminatedPods.Failed))
	if r.indexed() {
		r.succeededIndexes = parseIndexes(status.CompletedIndexes, r.completions())
	}
	if r.perIndex() {
		text := ""
		if status.FailedIndexes != nil {
			text = *status.FailedIndexes
		}
		r.failedIndexes = parseIndexes(text, r.completions())
	}
	for _, p := range r.pods {
		if !tracked(p) || noted[p.UID] {
			continue
		}
		i := indexOf(p)
		valid := !r.indexed() || (i >= 0 && i < r.completions())
		switch {
		case !valid:
		case p.Status.Phase == corev1.PodSucceeded:
			if r.indexed() {
				r.succeededIndexes[i] = true
			} else {
				r.succeeded++
			}
		case podFailed(p, r.job):
			verdict := judge(r.job, p)
			if verdict.counts {
				r.failed++
			}
			if r.perIndex() && r.indexFails(p, verdict) {
				r.failedIndexes[i] = true
			}
		}
	}
	if r.indexed() {
		r.succeeded = int32(len(r.succeededIndexes))
		for i := range r.succeededIndexes {
			delete(r.failedIndexes, i)
		}
	}
	r.findDelayed(noted)
}

// indexFails reports whether this failed pod ends its index: the index has used up its backoff
// limit, or the policy fails it.
func (r *round) indexFails(p *corev1.Pod, verdict judgement) bool {
	if verdict.action == batchv1.PodFailurePolicyActionFailIndex {
		return true
	}
	return verdict.counts && failureCount(p) >= int(*r.job.Spec.BackoffLimitPerIndex)
}

// findDelayed finds the indexes to retry: for each, the failed pod with the highest count that has
// no successor yet.
func (r *round) findDelayed(noted map[types.UID]bool) {
	r.delayed = map[int]*corev1.Pod{}
	if !r.perIndex() {
		return
	}
	total := func(p *corev1.Pod) int { return failureCount(p) + ignoredFailureCount(p) }
	for _, p := range r.pods {
		i := indexOf(p)
		if !tracked(p) || noted[p.UID] || i < 0 || i >= r.completions() || r.failedIndexes[i] || r.succeededIndexes[i] || !podFailed(p, r.job) || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		if have := r.delayed[i]; have == nil || total(p) > total(have) {
			r.delayed[i] = p
		}
	}
	for _, p := range r.active {
		if have := r.delayed[indexOf(p)]; have != nil && total(p) > total(have) {
			delete(r.delayed, indexOf(p))
		}
	}
}

// decide determines whether the job ends, before the call acts on its pods.
func (r *round) decide() {
	if c := condition(r.job.Status.Conditions, batchv1.JobFailureTarget); c != nil {
		r.end(batchv1.JobFailed, c.Reason, c.Message)
		return
	}
	if c := condition(r.job.Status.Conditions, batchv1.JobSuccessCriteriaMet); c != nil {
		r.end(batchv1.JobComplete, c.Reason, c.Message)
		return
	}
	for _, p := range r.pods {
		if verdict := judge(r.job, p); verdict.action == batchv1.PodFailurePolicyActionFailJob {
			r.end(batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy, verdict.message)
			return
		}
	}
	if limit := r.job.Spec.BackoffLimit; (limit != nil && r.failed > *limit) || restartLimitReached(r.job, r.pods) {
		r.end(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
		return
	}
	if deadline := r.job.Spec.ActiveDeadlineSeconds; deadline != nil && !r.suspended() && r.job.Status.StartTime != nil {
		rest := r.job.Status.StartTime.Add(time.Duration(*deadline) * time.Second).Sub(r.start)
		if rest <= 0 {
			r.end(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
			return
		}
		r.requeueIn(rest)
	}
	if limit := r.job.Spec.MaxFailedIndexes; r.perIndex() && limit != nil && len(r.failedIndexes) > int(*limit) {
		r.end(batchv1.JobFailed, batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
		return
	}
	if r.indexed() {
		if message, ok := matchSuccess(r.job.Spec.SuccessPolicy, r.completions(), r.succeededIndexes); ok {
			r.end(batchv1.JobComplete, batchv1.JobReasonSuccessPolicy, message)
		}
	}
}

func (r *round) end(t batchv1.JobConditionType, reason, message string) {
	r.done = &batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message}
}

// decideCompletion ends the job if all its work is done.
func (r *round) decideCompletion() {
	if len(r.active) > 0 || r.suspended() && r.succeeded < int32(r.completions()) {
		return
	}
	const message = "Reached expected number of succeeded pods"
	switch {
	// A work queue: the first success means that the queue is empty.
	case r.job.Spec.Completions == nil:
		if r.succeeded > 0 {
			r.end(batchv1.JobComplete, batchv1.JobReasonCompletionsReached, message)
		}
	case r.perIndex() && len(r.failedIndexes) > 0:
		if int(r.succeeded)+len(r.failedIndexes) >= r.completions() {
			r.end(batchv1.JobFailed, batchv1.JobReasonFailedIndexes, "Job has failed indexes")
		}
	case int(r.succeeded) >= r.completions():
		r.end(batchv1.JobComplete, batchv1.JobReasonCompletionsReached, message)
	}
}

// recordSuspension maintains the condition Suspended. Resuming resets the job's start time.
func (r *round) recordSuspension() {
	if r.suspended() {
		if r.setCondition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended") {
			r.env.Events.Eventf(r.job, nil, corev1.EventTypeNormal, "Suspended", "Suspend", "Job suspended")
		}
		return
	}
	if condition(r.job.Status.Conditions, batchv1.JobSuspended) == nil {
		return
	}
	r.setCondition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed")
	r.env.Events.Eventf(r.job, nil, corev1.EventTypeNormal, "Resumed", "Resume", "Job resumed")
	r.job.Status.StartTime = &metav1.Time{Time: r.start}
	if deadline := r.job.Spec.ActiveDeadlineSeconds; deadline != nil {
		r.requeueIn(time.Duration(*deadline) * time.Second)
	}
}

// setCondition sets the condition and reports whether its status changed.
func (r *round) setCondition(t batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) bool {
	now := metav1.NewTime(r.start)
	next := batchv1.JobCondition{Type: t, Status: status, Reason: reason, Message: message, LastProbeTime: now, LastTransitionTime: now}
	for i := range r.job.Status.Conditions {
		have := &r.job.Status.Conditions[i]
		if have.Type != t {
			continue
		}
		if have.Status == status && have.Reason == reason && have.Message == message {
			return false
		}
		changed := have.Status != status
		if !changed {
			next.LastTransitionTime = have.LastTransitionTime
		}
		*have = next
		return changed
	}
	r.job.Status.Conditions = append(r.job.Status.Conditions, next)
	return true
}
