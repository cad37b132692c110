package worker

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/status"
)

// Back-off of containers that end repeatedly.
const (
	reasonCrashLoop = "CrashLoopBackOff"
	crashBackoff    = 10 * time.Second
	crashBackoffMax = 5 * time.Minute
)

// crash is a container's back-off. wait is the delay after its last end; last is its last restart.
type crash struct {
	wait time.Duration
	last time.Time
}

// next returns the back-off after a restart at now: doubled up to longest, or the initial one if
// the container has run for long enough (KEP-4603).
func (c crash) next(now, finished time.Time, longest time.Duration) crash {
	if c.wait == 0 || finished.Sub(c.last) > 2*crashBackoffMax {
		return crash{min(crashBackoff, longest), now}
	}
	return crash{min(2*c.wait, longest), now}
}

// problem is the reason why a container could not start, and the time of the next try.
type problem struct {
	reason, message string
	retryAt         time.Time
	count           int
}

// state is the input of decide, which does not change it.
type state struct {
	pod      *corev1.Pod
	observed *pleg.Observed
	old      *corev1.PodStatus
	now      time.Time
	crashes  map[string]crash
	problems map[string]problem
	// busy has the names of the containers with an action in flight.
	busy map[string]bool
	// hidden has the ids of the containers whose postStart hook is not over.
	hidden map[string]bool
	// started has the ids of the running containers that have passed their startup probe, and
	// failed the probes that condemn running containers.
	started map[string]bool
	failed  map[string]probe.Kind
}

// start is a container to start.
type start struct {
	container *corev1.Container
	attempt   int
	// after is the end of the previous attempt; zero for the first start.
	after time.Time
	// target is the id of the container whose process namespace an ephemeral container joins.
	target string
}

// kill is a container to stop.
type kill struct {
	container *pleg.Container
	message   string // for the event
	reason    string
	// grace overrides the pod's grace period, in seconds.
	grace *int64
}

// killChanged is the reason of a kill after which the container runs again with its new definition.
const killChanged = "Changed"

// plan is the result of decide.
type plan struct {
	sandbox  bool // make a new one
	start    []start
	kill     []kill
	finished bool // no container will run any more
	waiting  map[string]corev1.ContainerStateWaiting
	// look is the time for the next decision without news; zero means none.
	look time.Time
}

func (p *plan) lookAt(t time.Time) {
	if p.look.IsZero() || t.Before(p.look) {
		p.look = t
	}
}

// decide plans the next actions on the pod's containers.
func decide(s *state) *plan {
	p := &plan{waiting: map[string]corev1.ContainerStateWaiting{}}
	for name, pr := range s.problems {
		p.waiting[name] = corev1.ContainerStateWaiting{Reason: pr.reason, Message: pr.message}
	}
	sandbox := s.observed.Sandbox()
	sandboxID := ""
	if sandbox.Ready() {
		sandboxID = sandbox.Id
	}
	for _, id := range slices.Sorted(maps.Keys(s.observed.Containers)) {
		c := s.observed.Containers[id]
		if c.Running() && (sandboxID == "" || c.SandboxID != "" && c.SandboxID != sandboxID) && !s.busy[c.Name()] {
			p.kill = append(p.kill, kill{container: c, reason: "SandboxChanged", message: "Stopping container " + c.Name()})
		}
	}
	if s.hasEnded() {
		p.finished = true
		return p
	}
	if sandboxID == "" {
		if sandbox != nil && len(p.kill) > 0 {
			return p // first stop the containers of the old sandbox
		}
		p.sandbox = true
	}
	for i := range s.pod.Spec.EphemeralContainers {
		s.ephemeral(p, &s.pod.Spec.EphemeralContainers[i])
	}
	if s.mainsStarted(sandboxID) {
		s.keepSidecars(p, sandboxID)
	} else if ready := s.inits(p, sandboxID); !ready {
		return p
	}
	for i := range s.pod.Spec.Containers {
		s.main(p, &s.pod.Spec.Containers[i], sandboxID)
	}
	return p
}

// pastDeadline reports whether the pod has run for its activeDeadlineSeconds.
func pastDeadline(pod *corev1.Pod, started, now time.Time) bool {
	end := deadline(pod, started)
	return !end.IsZero() && !now.Before(end)
}

// deadline is when the pod's activeDeadlineSeconds end; zero is never.
func deadline(pod *corev1.Pod, started time.Time) time.Time {
	if d := pod.Spec.ActiveDeadlineSeconds; d != nil {
		return started.Add(time.Duration(*d) * time.Second)
	}
	return time.Time{}
}

// hasEnded reports whether all regular containers have ended and none will run again, or a failed
// init container ends the pod.
func (s *state) hasEnded() bool {
	for i := range s.pod.Spec.InitContainers {
		c := &s.pod.Spec.InitContainers[i]
		if l := s.observed.Latest(c.Name); !spec.IsSidecar(c) && l.Exited() && l.ExitCode != 0 && !spec.Restarts(s.pod, c, true, l.ExitCode) &&
			!s.anyMain() {
			return true
		}
	}
	for i := range s.pod.Spec.Containers {
		c := &s.pod.Spec.Containers[i]
		l := s.observed.Latest(c.Name)
		if l == nil {
			// The runtime may have lost an ended container. The API's status still has it.
			if t := terminated(s.old.ContainerStatuses, c.Name); t == nil || spec.Restarts(s.pod, c, false, t.ExitCode) || status.Rerun(s.old, c.Name) {
				return false
			}
			continue
		}
		if !l.Exited() || s.busy[c.Name] || spec.Restarts(s.pod, c, false, l.ExitCode) {
			return false
		}
	}
	return true
}

func terminated(list []corev1.ContainerStatus, name string) *corev1.ContainerStateTerminated {
	for i := range list {
		if list[i].Name == name {
			return list[i].State.Terminated
		}
	}
	return nil
}

func (s *state) anyMain() bool { return s.mainsStarted("") }

// mainsStarted reports whether any regular container was made in the sandbox. If so, the init
// containers are done. "" means any sandbox.
func (s *state) mainsStarted(sandboxID string) bool {
	for i := range s.pod.Spec.Containers {
		name := s.pod.Spec.Containers[i].Name
		if sandboxID == "" && s.observed.Latest(name) != nil || sandboxID != "" && s.observed.LatestIn(name, sandboxID) != nil {
			return true
		}
	}
	return false
}

// inits plans the next init container. It returns true if the regular containers may start.
func (s *state) inits(p *plan, sandboxID string) bool {
	for i := range s.pod.Spec.InitContainers {
		c := &s.pod.Spec.InitContainers[i]
		l := s.observed.LatestIn(c.Name, sandboxID)
		if sandboxID == "" {
			l = nil
		}
		switch {
		case s.busy[c.Name]:
			s.keepSidecarsBefore(p, i, sandboxID)
			return false
		case spec.IsSidecar(c):
			if !l.Running() {
				s.run(p, c, l)
				s.keepSidecarsBefore(p, i, sandboxID)
				return false
			}
			if s.planKill(p, c, l) || s.hidden[l.Id] || !s.started[l.Id] {
				s.keepSidecarsBefore(p, i, sandboxID)
				return false
			}
		case l.Running():
			s.keepSidecarsBefore(p, i, sandboxID)
			return false
		case l.Exited() && l.ExitCode == 0:
		default:
			s.run(p, c, l)
			s.keepSidecarsBefore(p, i, sandboxID)
			return false
		}
	}
	s.keepSidecars(p, sandboxID)
	return true
}

func (s *state) keepSidecars(p *plan, sandboxID string) {
	s.keepSidecarsBefore(p, len(s.pod.Spec.InitContainers), sandboxID)
}

// keepSidecarsBefore restarts the ended sidecars among the first n init containers.
func (s *state) keepSidecarsBefore(p *plan, n int, sandboxID string) {
	for i := range s.pod.Spec.InitContainers[:n] {
		c := &s.pod.Spec.InitContainers[i]
		if !spec.IsSidecar(c) || s.busy[c.Name] {
			continue
		}
		if l := s.observed.LatestIn(c.Name, sandboxID); l.Running() {
			s.planKill(p, c, l)
		} else if !planned(p, c.Name) {
			s.run(p, c, l)
		}
	}
}

func planned(p *plan, name string) bool {
	for _, st := range p.start {
		if st.container.Name == name {
			return true
		}
	}
	return false
}

func (s *state) main(p *plan, c *corev1.Container, sandboxID string) {
	if s.busy[c.Name] {
		return
	}
	l := s.observed.Latest(c.Name)
	switch {
	case l == nil:
		if t := terminated(s.old.ContainerStatuses, c.Name); t != nil && !spec.Restarts(s.pod, c, false, t.ExitCode) && !status.Rerun(s.old, c.Name) {
			return
		}
		s.run(p, c, nil)
	case l.Running() && (l.SandboxID == sandboxID || l.SandboxID == ""):
		s.planKill(p, c, l)
	case l.Running():
	case l.Exited():
		if spec.Restarts(s.pod, c, false, l.ExitCode) {
			s.run(p, c, l)
		}
	default:
		s.run(p, c, l)
	}
}

// planKill plans the end of a running container whose probe failed or whose definition changed.
func (s *state) planKill(p *plan, c *corev1.Container, l *pleg.Container) bool {
	if hash := l.Annotations[spec.AnnotationHash]; hash != "" && hash != spec.Hash(c) {
		p.kill = append(p.kill, kill{container: l, reason: killChanged, message: fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)})
		return true
	}
	switch kind := s.failed[l.Id]; kind {
	case probe.Liveness:
		p.kill = append(p.kill, kill{container: l, reason: string(kind), grace: graceOf(c.LivenessProbe), message: fmt.Sprintf("Container %s failed liveness probe, will be restarted", c.Name)})
	case probe.Startup:
		p.kill = append(p.kill, kill{container: l, reason: string(kind), grace: graceOf(c.StartupProbe), message: fmt.Sprintf("Container %s failed startup probe, will be restarted", c.Name)})
	default:
		return false
	}
	return true
}

func graceOf(p *corev1.Probe) *int64 {
	if p == nil {
		return nil
	}
	return p.TerminationGracePeriodSeconds
}

// run plans the start of a container, unless it has to wait.
func (s *state) run(p *plan, c *corev1.Container, last *pleg.Container) {
	if pr, ok := s.problems[c.Name]; ok && s.now.Before(pr.retryAt) {
		p.lookAt(pr.retryAt)
		return
	}
	st := start{container: c, attempt: s.nextAttempt(c.Name)}
	if last.Exited() {
		st.after = last.FinishedTime()
		if b := s.crashes[c.Name]; b.wait > 0 {
			if at := st.after.Add(b.wait); s.now.Before(at) {
				p.waiting[c.Name] = corev1.ContainerStateWaiting{
					Reason:  reasonCrashLoop,
					Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", b.wait, c.Name, spec.FullName(s.pod)),
				}
				p.lookAt(at)
				return
			}
		}
	}
	p.start = append(p.start, st)
}

// nextAttempt counts the starts of a container, across sandboxes and restarts of the node agent.
func (s *state) nextAttempt(name string) int {
	next := 0
	if l := s.observed.Latest(name); l != nil {
		next = l.Attempt() + 1
	}
	for _, list := range [][]corev1.ContainerStatus{s.old.InitContainerStatuses, s.old.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name && list[i].ContainerID != "" {
				next = max(next, int(list[i].RestartCount)+1)
			}
		}
	}
	return next
}

// ephemeral plans the only start of an ephemeral container.
func (s *state) ephemeral(p *plan, e *corev1.EphemeralContainer) {
	if s.busy[e.Name] || s.observed.Latest(e.Name) != nil || terminated(s.old.EphemeralContainerStatuses, e.Name) != nil {
		return
	}
	if pr, ok := s.problems[e.Name]; ok && s.now.Before(pr.retryAt) {
		p.lookAt(pr.retryAt)
		return
	}
	c := corev1.Container(e.EphemeralContainerCommon)
	st := start{container: &c}
	if e.TargetContainerName != "" {
		t := s.observed.Latest(e.TargetContainerName)
		if t == nil || t.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			return
		}
		st.target = t.Id
	}
	p.start = append(p.start, st)
}
