package pods

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

var podColumns = columns.Define("Name", "Ready=The aggregate readiness state of this pod for accepting traffic.", "Status=The aggregate status of the containers in this pod.",
	"Restarts=The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.", "Age",
	"+IP@status.podIP", "+Node@spec.nodeName", "+Nominated Node@status.nominatedNodeName", "+Readiness Gates@spec.readinessGates")

func podRow(p *corev1.Pod, now metav1.Time) []any {
	s := summarizePod(p)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts > 0 && !s.lastRestart.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts, columns.Age(s.lastRestart, now))
	}
	ip := p.Status.PodIP
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	gates := columns.None
	if n := len(p.Spec.ReadinessGates); n > 0 {
		passed := 0
		for _, g := range p.Spec.ReadinessGates {
			if podCondition(p, g.ConditionType) == corev1.ConditionTrue {
				passed++
			}
		}
		gates = fmt.Sprintf("%d/%d", passed, n)
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.status, restarts, columns.AgeOf(p, now),
		columns.OrNone(ip), columns.OrNone(p.Spec.NodeName), columns.OrNone(p.Status.NominatedNodeName), gates,
	}
}

func podCondition(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// podSummary is a pod in one row of a table.
type podSummary struct {
	ready, total int
	status       string
	restarts     int
	lastRestart  metav1.Time
}

func summarizePod(p *corev1.Pod) podSummary {
	s := podSummary{total: len(p.Spec.Containers), status: string(p.Status.Phase)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	initializing := s.addInitContainers(p)
	if !initializing || podCondition(p, corev1.PodInitialized) == corev1.ConditionTrue {
		s.addContainers(p)
	}
	if p.DeletionTimestamp != nil {
		switch {
		case p.Status.Reason == "NodeLost":
			s.status = string(corev1.PodUnknown)
		case p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded:
			s.status = "Terminating"
		}
	}
	return s
}

// sidecars returns the names of the init containers that keep running beside the main containers.
func sidecars(p *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if validate.Deref(c.RestartPolicy) == corev1.ContainerRestartPolicyAlways {
			names[c.Name] = true
		}
	}
	return names
}

// addInitContainers reports whether the pod is still initializing.
func (s *podSummary) addInitContainers(p *corev1.Pod) bool {
	sidecar := sidecars(p)
	s.total += len(sidecar)
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.addRestarts(c)
		terminated, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case terminated != nil && terminated.ExitCode == 0:
			continue
		case sidecar[c.Name] && validate.Deref(c.Started):
			if c.Ready {
				s.ready++
			}
			continue
		case terminated != nil:
			s.status = "Init:" + endReason(terminated)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.status = "Init:" + waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return true
	}
	return false
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// addContainers counts the restarts of main containers and sidecars. The restarts of finished init
// containers no longer count.
func (s *podSummary) addContainers(p *corev1.Pod) {
	s.restarts, s.lastRestart = 0, metav1.Time{}
	sidecar := sidecars(p)
	for i := range p.Status.InitContainerStatuses {
		if c := &p.Status.InitContainerStatuses[i]; sidecar[c.Name] {
			s.addRestarts(c)
		}
	}
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.addRestarts(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = endReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	// Some containers have completed while others still run.
	if s.status == "Completed" && running {
		s.status = "NotReady"
		if podCondition(p, corev1.PodReady) == corev1.ConditionTrue {
			s.status = "Running"
		}
	}
}

func (s *podSummary) addRestarts(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.lastRestart.Before(&t.FinishedAt) {
		s.lastRestart = t.FinishedAt
	}
}
