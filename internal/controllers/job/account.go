package job

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// account records ended pods in the status, removes their finalizers, counts them, and writes the
// status.
func (r *round) account(ctx context.Context) error {
	free := r.recordEnded()
	r.describe()
	if len(free) > 0 {
		// The record must be in the store before the finalizers are removed: otherwise a pod
		// deleted in between would not be counted.
		if err := r.write(ctx); err != nil {
			return err
		}
		if err := r.free(ctx, free); err != nil {
			return err
		}
		r.pods = controller.Controlled(r.jobs.pods, r.job.UID)
		r.countFreed()
		r.countActive()
		r.describe()
	}
	r.finish()
	return r.write(ctx)
}

// recordEnded adds ended pods to the uncounted ones or to the indexes. It returns the pods whose
// finalizers can be removed afterwards.
func (r *round) recordEnded() []*corev1.Pod {
	uncounted := r.job.Status.UncountedTerminatedPods
	noted := r.uncounted()
	var free []*corev1.Pod
	for _, p := range r.counted {
		if len(free) >= maxPodsPerSync {
			break
		}
		if !tracked(p) {
			continue
		}
		failed := podFailed(p, r.job)
		if noted[p.UID] {
			free = append(free, p)
			continue
		}
		if !controller.PodEnded(p) && !failed && r.job.DeletionTimestamp == nil {
			continue
		}
		i := indexOf(p)
		if r.delayed[i] == p && r.done == nil && r.job.DeletionTimestamp == nil {
			continue
		}
		free = append(free, p)
		valid := !r.indexed() || (i >= 0 && i < r.completions())
		switch {
		case !valid:
		case p.Status.Phase == corev1.PodSucceeded:
			if r.indexed() {
				r.succeededIndexes[i] = true
			} else {
				uncounted.Succeeded = append(uncounted.Succeeded, p.UID)
			}
		case judge(r.job, p).counts:
			uncounted.Failed = append(uncounted.Failed, p.UID)
		}
	}
	return free
}

// describe sets the counts of the status.
func (r *round) describe() {
	status := &r.job.Status
	status.Active = int32(len(r.active))
	ready := int32(0)
	for _, p := range r.active {
		if controller.PodReady(p) {
			ready++
		}
	}
	terminating := r.terminating
	status.Ready, status.Terminating = &ready, &terminating
	if r.indexed() {
		status.Succeeded = int32(len(r.succeededIndexes))
		status.CompletedIndexes = r.succeededIndexes.String()
	}
	if r.perIndex() {
		text := r.failedIndexes.String()
		status.FailedIndexes = &text
	}
	if r.done == nil {
		return
	}
	announce := batchv1.JobFailureTarget
	if r.done.Type == batchv1.JobComplete {
		announce = batchv1.JobSuccessCriteriaMet
	}
	r.setCondition(announce, corev1.ConditionTrue, r.done.Reason, r.done.Message)
}

// finish sets the final condition of the job once all its pods have ended and are counted.
func (r *round) finish() {
	uncounted := r.job.Status.UncountedTerminatedPods
	if r.done == nil || len(r.active) > 0 || r.terminating > 0 || len(uncounted.Succeeded)+len(uncounted.Failed) > 0 {
		return
	}
	for _, p := range r.pods {
		if tracked(p) {
			return
		}
	}
	if !r.setCondition(r.done.Type, corev1.ConditionTrue, r.done.Reason, r.done.Message) {
		return
	}
	if r.done.Type == batchv1.JobComplete {
		r.job.Status.CompletionTime = &metav1.Time{Time: r.start}
	}
}

// write writes the status if it differs from the version last read or written. It sends an Event if
// that write ends the job.
func (r *round) write(ctx context.Context) error {
	if equality.Semantic.DeepEqual(r.old, r.job.Status) {
		return nil
	}
	updated, err := client.UpdateStatus(ctx, r.env.Client, r.job)
	if err != nil {
		return err
	}
	ended := finished(updated) != nil
	r.job = updated.DeepCopy()
	if r.job.Status.UncountedTerminatedPods == nil {
		r.job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	r.old = *r.job.Status.DeepCopy()
	if !ended {
		return nil
	}
	r.forget(r.job.UID)
	if r.done.Type == batchv1.JobComplete {
		r.env.Events.Eventf(updated, nil, corev1.EventTypeNormal, "Completed", "Complete", "Job completed")
	} else {
		r.env.Events.Eventf(updated, nil, corev1.EventTypeWarning, r.done.Reason, "Fail", "%s", r.done.Message)
	}
	return nil
}
