package hollow

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fate defines what happens to a pod's containers.
type Fate struct {
	// Ends makes the containers exit on their own with ExitCode after running for After.
	Ends     bool
	After    time.Duration
	ExitCode int32
	// Unready containers run but are not ready.
	Unready bool
	// Waiting keeps the containers from starting. It is the waiting reason in their status, such as
	// ImagePullBackOff.
	Waiting string
}

// Place is where a pod runs.
type Place struct {
	HostIP string
	PodIP  string
}

// Restarts back off like a kubelet's: 10 s, doubled up to five minutes. The first restart is
// immediate.
const (
	firstBackoff = 10 * time.Second
	mostBackoff  = 5 * time.Minute
)

// Decide returns a pod's next status. next is the delay until the status changes on its own; 0
// means never.
func Decide(pod *corev1.Pod, at Place, fate Fate, now time.Time) (status corev1.PodStatus, next time.Duration) {
	s := *pod.Status.DeepCopy()
	if s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed {
		return s, 0
	}
	d := decision{pod: pod, fate: fate, now: now}
	stamp := metav1.NewTime(now).Rfc3339Copy()
	if s.StartTime == nil {
		s.StartTime = &stamp
	}
	s.HostIP, s.HostIPs = at.HostIP, []corev1.HostIP{{IP: at.HostIP}}
	if at.PodIP != "" {
		s.PodIP, s.PodIPs = at.PodIP, []corev1.PodIP{{IP: at.PodIP}}
	}
	s.ObservedGeneration = pod.Generation
	s.InitContainerStatuses = d.initContainers(s.InitContainerStatuses)
	s.ContainerStatuses = d.containers(pod.Spec.Containers, s.ContainerStatuses, fate)
	s.Phase = d.phase(s.ContainerStatuses)
	d.conditions(&s)
	return s, d.next
}

type decision struct {
	pod  *corev1.Pod
	fate Fate
	now  time.Time
	next time.Duration
}

// at records that the status changes at t.
func (d *decision) at(t time.Time) {
	if rest := max(t.Sub(d.now), time.Millisecond); d.next == 0 || rest < d.next {
		d.next = rest
	}
}

// initContainers must end before the other containers start. Sidecars keep running.
func (d *decision) initContainers(old []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range d.pod.Spec.InitContainers {
		c := &d.pod.Spec.InitContainers[i]
		was := statusOf(old, c)
		switch {
		case d.fate.Waiting != "":
			wait(&was, d.fate.Waiting)
		case c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways:
			d.step(&was, Fate{Unready: d.fate.Unready})
		case was.State.Terminated == nil:
			now := metav1.NewTime(d.now).Rfc3339Copy()
			was.ContainerID = d.id(c.Name)
			was.Ready = true // like a kubelet's status of a completed init container
			was.Started = new(bool)
			was.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now, ContainerID: was.ContainerID}}
		}
		out = append(out, was)
	}
	return out
}

func (d *decision) containers(specs []corev1.Container, old []corev1.ContainerStatus, fate Fate) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, 0, len(specs))
	for i := range specs {
		was := statusOf(old, &specs[i])
		d.step(&was, fate)
		out = append(out, was)
	}
	return out
}

// step moves one container on: waiting → running → terminated → waiting, according to its fate and
// the pod's restart policy.
func (d *decision) step(c *corev1.ContainerStatus, fate Fate) {
	switch {
	case fate.Waiting != "" && c.State.Running == nil && c.State.Terminated == nil:
		wait(c, fate.Waiting)
		return
	case c.State.Running == nil && c.State.Terminated == nil && c.LastTerminationState.Terminated != nil:
		ended := c.LastTerminationState.Terminated.FinishedAt
		if due := ended.Add(backoff(c.RestartCount)); d.now.Before(due) {
			d.at(due)
			return
		}
		c.RestartCount++
		d.run(c, fate)
	case c.State.Running == nil && c.State.Terminated == nil:
		d.run(c, fate)
	}
	if running := c.State.Running; running != nil {
		c.Ready = !fate.Unready
		if !fate.Ends {
			return
		}
		due := running.StartedAt.Add(fate.After)
		if d.now.Before(due) {
			d.at(due)
			return
		}
		d.end(c, fate.ExitCode)
	}
	if ended := c.State.Terminated; ended != nil && d.restarts(ended.ExitCode) {
		c.LastTerminationState = c.State
		wait(c, "CrashLoopBackOff")
		d.at(ended.FinishedAt.Add(backoff(c.RestartCount)))
	}
}

func (d *decision) run(c *corev1.ContainerStatus, fate Fate) {
	yes := true
	c.ContainerID, c.Started, c.Ready = d.id(c.Name), &yes, !fate.Unready
	c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(d.now).Rfc3339Copy()}}
}

func (d *decision) end(c *corev1.ContainerStatus, code int32) {
	reason, started := "Completed", d.now
	if code != 0 {
		reason = "Error"
	}
	if c.State.Running != nil {
		started = c.State.Running.StartedAt.Time
	}
	no := false
	c.Ready, c.Started = false, &no
	c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, StartedAt: metav1.NewTime(started).Rfc3339Copy(), FinishedAt: metav1.NewTime(d.now).Rfc3339Copy(), ContainerID: c.ContainerID,
	}}
}

func (d *decision) restarts(code int32) bool {
	switch d.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
}

func (d *decision) id(container string) string {
	return "hollow://" + string(d.pod.UID) + "-" + container
}

func (d *decision) phase(containers []corev1.ContainerStatus) corev1.PodPhase {
	ended, failed, waiting := 0, 0, 0
	for i := range containers {
		switch c := &containers[i]; {
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			failed++
			ended++
		case c.State.Terminated != nil:
			ended++
		case c.State.Running == nil && c.LastTerminationState.Terminated == nil:
			waiting++
		}
	}
	switch {
	case ended == len(containers) && failed > 0:
		return corev1.PodFailed
	case ended == len(containers):
		return corev1.PodSucceeded
	case waiting > 0:
		return corev1.PodPending
	}
	return corev1.PodRunning
}

func (d *decision) conditions(s *corev1.PodStatus) {
	over := s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	ready := s.Phase == corev1.PodRunning
	for i := range s.ContainerStatuses {
		ready = ready && s.ContainerStatuses[i].Ready
	}
	reason := ""
	switch {
	case s.Phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case s.Phase == corev1.PodFailed:
		reason = "PodFailed"
	case !ready:
		reason = "ContainersNotReady"
	}
	initialized, initReason := d.fate.Waiting == "" || len(d.pod.Spec.InitContainers) == 0, ""
	if !initialized {
		initReason = "ContainersNotInitialized"
	}
	d.set(s, corev1.PodReadyToStartContainers, !over, "")
	d.set(s, corev1.PodInitialized, initialized, initReason)
	d.set(s, corev1.ContainersReady, ready, reason)
	gates := true
	for _, g := range d.pod.Spec.ReadinessGates {
		c := find(s.Conditions, g.ConditionType)
		gates = gates && c != nil && c.Status == corev1.ConditionTrue
	}
	if ready && !gates {
		reason = "ReadinessGatesNotReady"
	}
	d.set(s, corev1.PodReady, ready && gates, reason)
}

func (d *decision) set(s *corev1.PodStatus, t corev1.PodConditionType, is bool, reason string) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	c := find(s.Conditions, t)
	if c == nil {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: t})
		c = &s.Conditions[len(s.Conditions)-1]
	}
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(d.now).Rfc3339Copy()
	}
	c.Status, c.Reason, c.Message, c.ObservedGeneration = status, reason, "", d.pod.Generation
}

func find(conditions []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == t {
			return &conditions[i]
		}
	}
	return nil
}

// exitTerminated is the exit code of a process that SIGTERM has ended.
const exitTerminated = 143

// Terminated is the status of a deleted pod whose containers have ended. With the restart policy
// Always the containers have succeeded. With any other policy they were interrupted and have
// failed, so that a Job does not count the pod as a success.
func Terminated(pod *corev1.Pod, now time.Time) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	if s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed {
		return s
	}
	d, code := decision{pod: pod, now: now}, int32(0)
	if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		code = exitTerminated
	}
	for _, statuses := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].State.Terminated == nil {
				d.end(&statuses[i], code)
			}
		}
	}
	s.Phase = d.phase(s.ContainerStatuses)
	d.conditions(&s)
	return s
}

func statusOf(old []corev1.ContainerStatus, c *corev1.Container) corev1.ContainerStatus {
	for i := range old {
		if old[i].Name == c.Name {
			old[i].Image = c.Image
			return old[i]
		}
	}
	no := false
	return corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "hollow://" + c.Image, Started: &no,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
}

func wait(c *corev1.ContainerStatus, reason string) {
	no := false
	c.Ready, c.Started = false, &no
	c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func backoff(restarts int32) time.Duration {
	if restarts == 0 {
		return 0
	}
	return min(firstBackoff<<min(restarts-1, 6), mostBackoff)
}
