package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// onlyReplaceFailed reports whether a pod is replaced only once it has ended, and not while it is
// being deleted.
func onlyReplaceFailed(job *batchv1.Job) bool {
	return job.Spec.PodFailurePolicy != nil || (job.Spec.PodReplacementPolicy != nil && *job.Spec.PodReplacementPolicy == batchv1.Failed)
}

// podFailed reports whether the pod counts as a failure.
func podFailed(p *corev1.Pod, job *batchv1.Job) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	if onlyReplaceFailed(job) {
		return false
	}
	return p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded
}

// judgement is the verdict of the pod failure policy on a failed pod.
type judgement struct {
	counts  bool // counts towards backoffLimit
	action  batchv1.PodFailurePolicyAction
	message string // the reason of the job's failure, for FailJob
}

// judge applies the first rule that matches the pod.
func judge(job *batchv1.Job, p *corev1.Pod) judgement {
	if job.Spec.PodFailurePolicy == nil || p.Status.Phase != corev1.PodFailed {
		return judgement{counts: true, action: batchv1.PodFailurePolicyActionCount}
	}
	for i, rule := range job.Spec.PodFailurePolicy.Rules {
		what := ""
		switch {
		case rule.OnExitCodes != nil:
			if name, code, ok := matchExitCode(p, rule.OnExitCodes); ok {
				what = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", name, p.Namespace, p.Name, code)
			}
		default:
			if t, ok := matchCondition(p, rule.OnPodConditions); ok {
				what = fmt.Sprintf("Pod %s/%s has condition %s", p.Namespace, p.Name, t)
			}
		}
		if what == "" {
			continue
		}
		return judgement{
			counts:  rule.Action != batchv1.PodFailurePolicyActionIgnore,
			action:  rule.Action,
			message: fmt.Sprintf("%s matching %s rule at index %d", what, rule.Action, i),
		}
	}
	return judgement{counts: true, action: batchv1.PodFailurePolicyActionCount}
}

// matchExitCode returns a container that failed with an exit code covered by the requirement.
func matchExitCode(p *corev1.Pod, want *batchv1.PodFailurePolicyOnExitCodesRequirement) (container string, code int32, ok bool) {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for _, s := range list {
			if (want.ContainerName != nil && s.Name != *want.ContainerName) || s.State.Terminated == nil || s.State.Terminated.ExitCode == 0 {
				continue
			}
			listed := slices.Contains(want.Values, s.State.Terminated.ExitCode)
			if listed == (want.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return s.Name, s.State.Terminated.ExitCode, true
			}
		}
	}
	return "", 0, false
}

func matchCondition(p *corev1.Pod, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) (corev1.PodConditionType, bool) {
	for _, c := range p.Status.Conditions {
		for _, want := range patterns {
			if c.Type == want.Type && c.Status == want.Status {
				return c.Type, true
			}
		}
	}
	return "", false
}

// matchSuccess returns the message of the first rule of the success policy that the succeeded
// indexes fulfil.
func matchSuccess(policy *batchv1.SuccessPolicy, completions int, succeeded indexSet) (message string, ok bool) {
	if policy == nil {
		return "", false
	}
	for i, rule := range policy.Rules {
		matched := len(succeeded)
		need := 0
		if rule.SucceededIndexes != nil {
			matched = 0
			wanted := parseIndexes(*rule.SucceededIndexes, completions)
			for index := range wanted {
				if succeeded[index] {
					matched++
				}
			}
			need = len(wanted)
		}
		if rule.SucceededCount != nil {
			need = int(*rule.SucceededCount)
		}
		if matched >= need {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}

// restartLimitReached reports whether containers have restarted more often than backoffLimit
// allows. With restartPolicy OnFailure, restarts by the kubelet count as failures.
func restartLimitReached(job *batchv1.Job, pods []*corev1.Pod) bool {
	if job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure || job.Spec.BackoffLimit == nil {
		return false
	}
	restarts := int32(0)
	for _, p := range pods {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, s := range p.Status.InitContainerStatuses {
			restarts += s.RestartCount
		}
		for _, s := range p.Status.ContainerStatuses {
			restarts += s.RestartCount
		}
	}
	if *job.Spec.BackoffLimit == 0 {
		return restarts > 0
	}
	return restarts >= *job.Spec.BackoffLimit
}
