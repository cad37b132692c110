package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// Reasons of containers' states.
const (
	ReasonCreating        = "ContainerCreating"
	ReasonPodInitializing = "PodInitializing"
	ReasonUnknown         = "ContainerStatusUnknown"
	messageGone           = "The container could not be located when the pod was terminated"
)

// exitUnknown is the exit code of containers whose end was not observed.
const exitUnknown = 137

// Input is everything that a pod's status is computed from.
type Input struct {
	Pod *corev1.Pod
	// Old is the status that the API has or had.
	Old      *corev1.PodStatus
	Observed *pleg.Observed
	// Waiting explains why wanted containers do not run.
	Waiting map[string]corev1.ContainerStateWaiting
	// Hidden lists containers whose postStart hook has not finished.
	Hidden map[string]bool
	// Ready and Started are the probe results of a running container.
	Ready, Started func(container *corev1.Container, id string) bool
	// LastWords reads an ended container's termination message.
	LastWords func(container *corev1.Container, c *pleg.Container) string
	// Resources are the effective resources of running containers, by container id.
	Resources map[string]*corev1.ResourceRequirements
	// Devices returns the health of a container's devices; nil if it has none, or has none any
	// more. May be nil.
	Devices func(container *corev1.Container) []corev1.ResourceStatus
	HostIPs []string
	// Ended means that the pod was asked to end and nothing of it runs any more.
	Ended bool
	// Failed forces the phase Failed with this reason and message.
	Failed, FailedReason, FailedMessage string
	// SandboxReady means that containers can be started.
	SandboxReady bool
	StartTime    metav1.Time
	// RuntimeName is the prefix of container ids: "containerd".
	RuntimeName string
	// RestartingAll is the message of a restart of all containers that is stopping them; "" if
	// there is none.
	RestartingAll string
	// PodResources are the resources that the pod's cgroup has; nil if the pod sets none.
	PodResources *corev1.ResourceRequirements
	// Resize are the conditions of an in-place resize.
	Resize []corev1.PodCondition
	Now    time.Time
}

func old(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// container makes one container's status.
func (in *Input) container(c *corev1.Container, before *corev1.ContainerStatus, defaultReason string) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	attempts := in.Observed.Attempts(c.Name)
	if len(attempts) > 0 && attempts[0].State == runtimeapi.ContainerState_CONTAINER_CREATED {
		attempts = attempts[1:] // it is about to run; until then its status stays hidden
	}
	if before != nil {
		s.RestartCount = before.RestartCount
		s.LastTerminationState = before.LastTerminationState
		s.ImageID, s.ContainerID = before.ImageID, before.ContainerID
	}
	if len(attempts) == 0 {
		in.withoutContainer(&s, before, defaultReason)
	} else {
		in.fromRuntime(&s, c, attempts, before, defaultReason)
	}
	if w, ok := in.Waiting[c.Name]; ok && s.State.Running == nil {
		if s.State.Terminated != nil {
			s.LastTerminationState = s.State
		}
		s.State = corev1.ContainerState{Waiting: &w}
	}
	if s.State.Running != nil {
		s.Started = ptr(in.Started(c, attempts[0].Id))
		s.Ready = *s.Started && in.Ready(c, attempts[0].Id)
	} else {
		s.Started = ptr(false)
	}
	if before != nil {
		s.AllocatedResourcesStatus = before.AllocatedResourcesStatus
	}
	if in.Devices != nil {
		if devices := in.Devices(c); devices != nil {
			s.AllocatedResourcesStatus = devices
		}
	}
	in.resources(&s, c, attempts)
	in.mounts(&s, c)
	return s
}

// withoutContainer sets the status of a container that the runtime does not have, or no longer has.
func (in *Input) withoutContainer(s, before *corev1.ContainerStatus, defaultReason string) {
	switch {
	case before != nil && before.State.Terminated != nil && !in.Ended && in.Failed == "" && Rerun(in.Old, s.Name):
		s.LastTerminationState = before.State
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: defaultReason}
	case before != nil && before.State.Terminated != nil:
		s.State = before.State
	case before != nil && before.State.Running != nil:
		gone := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: ReasonUnknown, Message: messageGone, ExitCode: exitUnknown, ContainerID: before.ContainerID,
			StartedAt: before.State.Running.StartedAt,
		}}
		if in.Ended || in.Failed != "" {
			s.State = gone
			return
		}
		s.LastTerminationState = gone
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: defaultReason}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: defaultReason}
	}
}

func (in *Input) fromRuntime(s *corev1.ContainerStatus, c *corev1.Container, attempts []*pleg.Container, before *corev1.ContainerStatus, defaultReason string) {
	now := attempts[0]
	s.State = in.state(c, now, defaultReason)
	s.RestartCount = max(s.RestartCount, int32(now.Attempt()))
	s.ContainerID = in.id(now)
	s.ImageID = now.ImageRef
	if image := now.GetImage().GetUserSpecifiedImage(); image != "" {
		s.Image = image
	} else if image := now.GetImage().GetImage(); image != "" {
		s.Image = image
	}
	if len(attempts) > 1 {
		s.LastTerminationState = in.state(c, attempts[1], defaultReason)
		if s.LastTerminationState.Terminated == nil {
			s.LastTerminationState = corev1.ContainerState{}
		}
	} else if before != nil && before.ContainerID != "" && before.ContainerID != s.ContainerID && before.State.Terminated != nil {
		s.LastTerminationState = before.State
	}
	if u := now.GetUser().GetLinux(); u != nil {
		s.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: u.Uid, GID: u.Gid, SupplementalGroups: u.SupplementalGroups}}
	}
	if sig := now.GetStopSignal(); sig != runtimeapi.Signal_RUNTIME_DEFAULT && in.Pod.Spec.OS != nil {
		s.StopSignal = ptr(corev1.Signal(sig.String()))
	}
}

func (in *Input) id(c *pleg.Container) string { return in.RuntimeName + "://" + c.Id }

func (in *Input) state(c *corev1.Container, r *pleg.Container, defaultReason string) corev1.ContainerState {
	switch r.State {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		if in.Hidden[r.Id] {
			return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: defaultReason}}
		}
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: when(r.StartedAt)}}
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: defaultReason}}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		t := &corev1.ContainerStateTerminated{
			ExitCode: r.ExitCode, Reason: r.Reason, Message: in.LastWords(c, r),
			StartedAt: when(r.StartedAt), FinishedAt: when(r.FinishedAt), ContainerID: in.id(r),
		}
		if t.Reason == "" {
			t.Reason = "Completed"
			if t.ExitCode != 0 {
				t.Reason = "Error"
			}
		}
		return corev1.ContainerState{Terminated: t}
	}
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: ReasonUnknown, ExitCode: exitUnknown, Message: messageGone, ContainerID: in.id(r),
	}}
}

// when converts a time of the runtime. The runtime gives 0 for events that have not happened, such
// as the start of a container whose program does not exist. Upstream's kubelet reports the Unix
// epoch for 0; clients would print Go's zero time as the year 1.
func when(nanoseconds int64) metav1.Time {
	return metav1.Unix(0, max(nanoseconds, 0)).Rfc3339Copy()
}

func (in *Input) resources(s *corev1.ContainerStatus, c *corev1.Container, attempts []*pleg.Container) {
	s.Resources = c.Resources.DeepCopy()
	s.Resources.Claims = nil
	if len(c.Resources.Requests) > 0 {
		s.AllocatedResources = c.Resources.Requests.DeepCopy()
	}
	if len(attempts) > 0 && attempts[0].Running() {
		if actual := in.Resources[attempts[0].Id]; actual != nil {
			s.Resources = actual.DeepCopy()
			s.Resources.Claims = nil
		}
	}
}

func (in *Input) mounts(s *corev1.ContainerStatus, c *corev1.Container) {
	for _, m := range c.VolumeMounts {
		st := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			st.RecursiveReadOnly = ptr(corev1.RecursiveReadOnlyDisabled)
			if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled {
				st.RecursiveReadOnly = ptr(corev1.RecursiveReadOnlyEnabled)
			}
		}
		s.VolumeMounts = append(s.VolumeMounts, st)
	}
}

func ptr[T any](v T) *T { return &v }

// InitialReason is the waiting reason of a container that has not started yet.
func InitialReason(pod *corev1.Pod, initContainersDone bool, init bool) string {
	if len(pod.Spec.InitContainers) > 0 && !init && !initContainersDone {
		return ReasonPodInitializing
	}
	if len(pod.Spec.InitContainers) > 0 && init {
		return ReasonPodInitializing
	}
	return ReasonCreating
}

// restarts is spec.Restarts for the ended container of the status.
func restarts(pod *corev1.Pod, c *corev1.Container, init bool, s *corev1.ContainerStatus) bool {
	t := s.State.Terminated
	if t == nil {
		t = s.LastTerminationState.Terminated
	}
	return t != nil && spec.Restarts(pod, c, init, t.ExitCode)
}
