package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// Reasons of pods' conditions.
const (
	reasonCompleted      = "PodCompleted"
	reasonFailed         = "PodFailed"
	reasonNotReady       = "ContainersNotReady"
	reasonNotInitialized = "ContainersNotInitialized"
	reasonGates          = "ReadinessGatesNotReady"
)

// Generate computes the pod's status. Conditions and fields of other writers are kept from the old
// status.
func Generate(in Input) corev1.PodStatus {
	pod := in.Pod
	s := *in.Old.DeepCopy()
	s.ObservedGeneration = in.observedGeneration()
	s.QOSClass = spec.QOS(pod)
	in.addresses(&s)
	in.containers(&s)
	in.podResources(&s)
	s.Phase = in.phase(&s)
	if in.Failed != "" {
		s.Reason, s.Message = in.FailedReason, in.FailedMessage
	}
	in.conditions(&s)
	return s
}

// Terminal reports whether a pod in this phase has ended.
func Terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// podResources sets the resources of the whole pod (KEP-5419): those that the node has granted, and
// those that the pod's cgroup has. Without pod-level resources, the former is the containers' sum.
func (in *Input) podResources(s *corev1.PodStatus) {
	s.AllocatedResources, s.Resources = nil, nil
	if r := in.Pod.Spec.Resources; r != nil {
		s.AllocatedResources, s.Resources = r.Requests.DeepCopy(), r.DeepCopy()
		if in.PodResources != nil {
			s.Resources = in.PodResources.DeepCopy()
		}
		return
	}
	if sum := resourcehelper.PodRequests(in.Pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}); len(sum) > 0 {
		s.AllocatedResources = sum
	}
}

func (in *Input) addresses(s *corev1.PodStatus) {
	if !in.StartTime.IsZero() {
		s.StartTime = in.StartTime.DeepCopy()
	}
	s.HostIP, s.HostIPs = "", nil
	for i, ip := range in.HostIPs {
		if i == 0 {
			s.HostIP = ip
		}
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
	}
	ips := in.Observed.Sandbox().IPs()
	if in.Pod.Spec.HostNetwork {
		ips = in.HostIPs
	}
	if len(ips) == 0 {
		return // keep the known address: it stays in an ended pod's status
	}
	s.PodIP, s.PodIPs = ips[0], nil
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
}

func (in *Input) containers(s *corev1.PodStatus) {
	pod, before := in.Pod, in.Old
	inits := make([]corev1.ContainerStatus, 0, len(pod.Spec.InitContainers))
	mainStarted := false
	for i := range pod.Spec.Containers {
		mainStarted = mainStarted || in.Observed.Latest(pod.Spec.Containers[i].Name) != nil
	}
	initsDone := true
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		st := in.container(c, old(before.InitContainerStatuses, c.Name), ReasonPodInitializing)
		if spec.IsSidecar(c) {
			initsDone = initsDone && *st.Started
		} else {
			// A regular init container is ready when it has completed.
			st.Ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
			if mainStarted && in.Observed.Latest(c.Name) == nil && st.State.Waiting != nil {
				// Its container was removed after it had completed.
				st.Ready = true
				st.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					Reason: "Completed", Message: "Unable to get init container status from container runtime and pod has been initialized, treat it as exit normally",
				}}
			}
			initsDone = initsDone && st.Ready
		}
		inits = append(inits, st)
	}
	reason := ReasonCreating
	if len(pod.Spec.InitContainers) > 0 && !mainStarted && !(initsDone && len(inits) > 0 && in.anyMainWaiting()) {
		reason = ReasonPodInitializing
	}
	mains := make([]corev1.ContainerStatus, 0, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		mains = append(mains, in.container(c, old(before.ContainerStatuses, c.Name), reason))
	}
	s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses = nil, mains, nil
	if len(inits) > 0 {
		s.InitContainerStatuses = inits
	}
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		st := in.container(&c, old(before.EphemeralContainerStatuses, c.Name), ReasonCreating)
		st.Started, st.Resources = nil, nil
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, st)
	}
}

func (in *Input) anyMainWaiting() bool {
	for i := range in.Pod.Spec.Containers {
		if _, ok := in.Waiting[in.Pod.Spec.Containers[i].Name]; ok {
			return true
		}
	}
	return false
}

// phase computes the pod's phase from its containers.
func (in *Input) phase(s *corev1.PodStatus) corev1.PodPhase {
	if Terminal(in.Old.Phase) {
		return in.Old.Phase // the phase never goes back
	}
	running := in.Observed.AnyRunning()
	if in.Failed != "" {
		if running {
			return nonTerminal(in.Old.Phase)
		}
		return corev1.PodFailed
	}
	if in.RestartingAll != "" || !in.Ended && in.reruns() {
		return in.restartPhase(s)
	}
	p := in.computedPhase(s)
	if Terminal(p) && running {
		// Sidecars or containers that are still being stopped hold the pod's resources.
		return corev1.PodRunning
	}
	if in.Ended && !Terminal(p) {
		return corev1.PodFailed
	}
	return p
}

// restartPhase is the phase while all containers restart: Pending, unless an init container fails
// for good.
func (in *Input) restartPhase(s *corev1.PodStatus) corev1.PodPhase {
	if in.RestartingAll != "" {
		return corev1.PodPending
	}
	for i := range s.InitContainerStatuses {
		c, st := &in.Pod.Spec.InitContainers[i], &s.InitContainerStatuses[i]
		if !spec.IsSidecar(c) && st.State.Terminated != nil && !st.Ready && !restarts(in.Pod, c, true, st) && !in.Observed.AnyRunning() {
			return corev1.PodFailed
		}
	}
	return corev1.PodPending
}

func nonTerminal(p corev1.PodPhase) corev1.PodPhase {
	if p == "" {
		return corev1.PodPending
	}
	return p
}

func (in *Input) computedPhase(s *corev1.PodStatus) corev1.PodPhase {
	pod := in.Pod
	mainSeen := false
	for i := range s.ContainerStatuses {
		m := &s.ContainerStatuses[i]
		mainSeen = mainSeen || m.State.Running != nil || m.State.Terminated != nil || m.LastTerminationState.Terminated != nil
	}
	for i := range s.InitContainerStatuses {
		c, st := &pod.Spec.InitContainers[i], &s.InitContainerStatuses[i]
		if spec.IsSidecar(c) {
			if !mainSeen && !*st.Started {
				return corev1.PodPending
			}
			continue
		}
		if st.Ready || mainSeen {
			continue
		}
		if st.State.Terminated != nil && !restarts(pod, c, true, st) {
			return corev1.PodFailed
		}
		return corev1.PodPending
	}
	waiting, alive, failed := 0, 0, 0
	for i := range s.ContainerStatuses {
		c, st := &pod.Spec.Containers[i], &s.ContainerStatuses[i]
		switch {
		case st.State.Running != nil:
			alive++
		case st.State.Terminated == nil && st.LastTerminationState.Terminated == nil:
			waiting++
		case !in.Ended && restarts(pod, c, false, st):
			alive++
		case st.State.Terminated == nil || st.State.Terminated.ExitCode != 0:
			failed++
		}
	}
	switch {
	case waiting > 0:
		return corev1.PodPending
	case alive > 0:
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

func (in *Input) conditions(s *corev1.PodStatus) {
	ready := in.containersReady(s)
	podReady := corev1.PodCondition{Type: corev1.PodReady, Status: ready.Status, Reason: ready.Reason, Message: ready.Message}
	if podReady.Status == corev1.ConditionTrue {
		if m := in.gates(s); m != "" {
			podReady.Status, podReady.Reason, podReady.Message = corev1.ConditionFalse, reasonGates, m
		}
	}
	toStart := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: boolStatus(in.SandboxReady)}
	owned := []corev1.PodCondition{toStart, in.initialized(s), podReady, ready, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	owned = append(owned, in.Resize...)
	if c := in.restartCondition(); c != nil {
		owned = append(owned, *c)
	}
	if in.Failed != "" && in.Failed != "Admission" && in.Failed != "DeadlineExceeded" {
		owned = append(owned, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: in.FailedMessage,
		})
	}
	var out []corev1.PodCondition
	for _, c := range owned {
		out = append(out, in.stamp(c))
	}
	for _, c := range in.Old.Conditions {
		if !has(out, c.Type) && c.Type != corev1.PodResizePending && c.Type != corev1.PodResizeInProgress {
			out = append(out, c)
		}
	}
	s.Conditions = out
}

func has(list []corev1.PodCondition, t corev1.PodConditionType) bool {
	for i := range list {
		if list[i].Type == t {
			return true
		}
	}
	return false
}

// observedGeneration is zero for a static pod: the generation in the API is of its mirror.
func (in *Input) observedGeneration() int64 {
	if IsStatic(in.Pod) {
		return 0
	}
	return in.Pod.Generation
}

// stamp sets a condition's times. The transition time only changes with the status.
func (in *Input) stamp(c corev1.PodCondition) corev1.PodCondition {
	c.ObservedGeneration = in.observedGeneration()
	c.LastTransitionTime = metav1.NewTime(in.Now).Rfc3339Copy()
	for _, o := range in.Old.Conditions {
		if o.Type == c.Type && o.Status == c.Status {
			c.LastTransitionTime, c.LastProbeTime = o.LastTransitionTime, o.LastProbeTime
		}
	}
	return c
}

func boolStatus(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func (in *Input) initialized(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if s.Phase == corev1.PodSucceeded {
		c.Reason = reasonCompleted
		return c
	}
	for i := range s.ContainerStatuses {
		if m := &s.ContainerStatuses[i]; m.State.Running != nil || m.State.Terminated != nil || m.LastTerminationState.Terminated != nil {
			return c
		}
	}
	var incomplete []string
	for i := range s.InitContainerStatuses {
		st := &s.InitContainerStatuses[i]
		done := st.Ready
		if spec.IsSidecar(&in.Pod.Spec.InitContainers[i]) {
			done = *st.Started
		}
		if !done {
			incomplete = append(incomplete, st.Name)
		}
	}
	if len(incomplete) > 0 {
		c.Status, c.Reason = corev1.ConditionFalse, reasonNotInitialized
		c.Message = fmt.Sprintf("containers with incomplete status: %v", incomplete)
	}
	return c
}

func (in *Input) containersReady(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch s.Phase {
	case corev1.PodSucceeded:
		c.Reason = reasonCompleted
		return c
	case corev1.PodFailed:
		c.Reason = reasonFailed
		return c
	}
	var unready []string
	for i := range s.InitContainerStatuses {
		if spec.IsSidecar(&in.Pod.Spec.InitContainers[i]) && !s.InitContainerStatuses[i].Ready {
			unready = append(unready, s.InitContainerStatuses[i].Name)
		}
	}
	for i := range s.ContainerStatuses {
		if !s.ContainerStatuses[i].Ready {
			unready = append(unready, s.ContainerStatuses[i].Name)
		}
	}
	if len(unready) > 0 {
		c.Reason, c.Message = reasonNotReady, fmt.Sprintf("containers with unready status: %v", unready)
		return c
	}
	c.Status = corev1.ConditionTrue
	return c
}

// gates lists the unmet readiness gates; "" if all are met.
func (in *Input) gates(s *corev1.PodStatus) string {
	var unmet []string
	for _, g := range in.Pod.Spec.ReadinessGates {
		found := false
		for _, c := range in.Old.Conditions {
			if c.Type != g.ConditionType {
				continue
			}
			found = true
			if c.Status != corev1.ConditionTrue {
				unmet = append(unmet, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", g.ConditionType, c.Status))
			}
		}
		if !found {
			unmet = append(unmet, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		}
	}
	return strings.Join(unmet, ", ")
}
