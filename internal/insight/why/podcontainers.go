package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Causes of containers that do not run.
const (
	causeCrash          = "container-crash"
	causeCompletes      = "container-completes"
	causeOOM            = "container-out-of-memory"
	causeKilled         = "container-killed"
	causeCommand        = "container-command-not-found"
	causePermission     = "container-permission"
	causeSegfault       = "container-segmentation-fault"
	causeLiveness       = "container-liveness-probe"
	causeReadiness      = "container-readiness-probe"
	causeStartup        = "container-startup-probe"
	causePostStart      = "container-post-start-hook"
	causeNonRoot        = "container-run-as-non-root"
	causeStart          = "container-start"
	causeNotReadyYet    = "container-not-ready"
	causeInit           = "container-init-runs"
	causeReadinessGate  = "pod-readiness-gate"
	causeEvicted        = "pod-evicted"
	causeDeadline       = "pod-deadline"
	causeNodeRefused    = "pod-refused-by-node"
	causeFailed         = "pod-failed"
	recent              = time.Hour
	exitSegfault        = 139
	exitKilled          = 137
	exitCommandNotFound = 127
	exitNotExecutable   = 126
)

// podContainers explains containers that do not start, end, or are not ready.
func podContainers(s *Snapshot, p *corev1.Pod) []Finding {
	if p.Status.Phase == corev1.PodSucceeded || p.DeletionTimestamp != nil {
		return nil
	}
	if p.Status.Phase == corev1.PodFailed {
		return failedPod(s, p)
	}
	var out []Finding
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		if sidecar := restartableInit(p, c.Name); c.State.Running == nil || sidecar {
			if f := containerState(s, p, c); f != nil {
				return append(out, *f)
			}
		}
		if c.State.Running != nil && !restartableInit(p, c.Name) && s.Now.Sub(c.State.Running.StartedAt.Time) > time.Minute {
			out = append(out, Finding{
				Cause: causeInit, Problem: "init container " + c.Name + " has been running for " + age(s.Now.Sub(c.State.Running.StartedAt.Time)) + "; the containers start when it has ended.",
				Evidence: logFacts(s, p, c.Name, false), Remedy: "Find out what it waits for: kubectl logs " + p.Name + " -c " + c.Name + ".",
			})
			return out
		}
	}
	for i := range p.Status.ContainerStatuses {
		if f := containerState(s, p, &p.Status.ContainerStatuses[i]); f != nil {
			out = append(out, *f)
		}
	}
	if len(out) == 0 {
		out = readinessGates(p)
	}
	return out
}

func restartableInit(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// containerState explains one container, or returns nil if nothing is wrong with it.
func containerState(s *Snapshot, p *corev1.Pod, c *corev1.ContainerStatus) *Finding {
	switch w := c.State.Waiting; {
	case w != nil && w.Reason == reasonCrashLoop:
		return crash(s, p, c, c.LastTerminationState.Terminated)
	case w != nil && (w.Reason == reasonCreateError || w.Reason == reasonRunError):
		return startFailure(c)
	case w != nil && w.Reason == reasonConfigError && strings.Contains(w.Message, "runAsNonRoot"):
		return &Finding{
			Cause: causeNonRoot, Problem: "container " + c.Name + " must not run as root (runAsNonRoot), and its image runs as root.",
			Evidence: []Fact{{Text: oneLine(w.Message)}}, Remedy: "Set securityContext.runAsUser to another user than 0, or USER in the image.",
		}
	case w != nil && w.Reason == "PostStartHookError":
		return &Finding{Cause: causePostStart, Problem: "container " + c.Name + ": its postStart hook failed.", Evidence: []Fact{{Text: oneLine(w.Message)}}, Remedy: "Correct lifecycle.postStart."}
	case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
		return crash(s, p, c, c.State.Terminated)
	case c.State.Running != nil:
		return running(s, p, c)
	}
	return nil
}

// crash explains a container that ended.
func crash(s *Snapshot, p *corev1.Pod, c *corev1.ContainerStatus, end *corev1.ContainerStateTerminated) *Finding {
	if end == nil {
		return &Finding{Cause: causeCrash, Problem: "container " + c.Name + " ends again and again.", Evidence: logFacts(s, p, c.Name, true)}
	}
	f := exitFinding(p, c.Name, end)
	if c.RestartCount > 0 {
		f.Problem = strings.TrimSuffix(f.Problem, ".") + fmt.Sprintf("; restarted %s.", plural(int(c.RestartCount), "time"))
	}
	killed := killedByProbe(s, p, c.Name, end)
	probe := probeEvent(s, p, c.Name)
	switch {
	case end.Reason == "OOMKilled":
	case killed == "Liveness", killed == "" && probe == "Liveness" && (end.ExitCode == exitKilled || end.ExitCode == 143 || end.ExitCode == 0):
		return probeFinding(s, p, c, causeLiveness, "Liveness")
	case killed == "Startup", killed == "" && probe == "Startup":
		return probeFinding(s, p, c, causeStartup, "Startup")
	}
	if e := s.event(refTo(p), "FailedPostStartHook"); e != nil {
		f.Cause, f.Problem, f.Remedy = causePostStart, "container "+c.Name+" is ended because its postStart hook fails.", "Correct lifecycle.postStart."
		f.Evidence = append(f.Evidence, Fact{Text: "event FailedPostStartHook: " + oneLine(e.Message)})
	}
	log := logFacts(s, p, c.Name, c.State.Terminated == nil)
	f.Evidence = append(f.Evidence, log...)
	if f.Cause == causeCrash {
		text := end.Message
		for _, fact := range log {
			text += "\n" + fact.Text
		}
		fromLog(s, p, c.Name, &f, text)
	}
	return &f
}

// exitFinding explains an exit status.
func exitFinding(p *corev1.Pod, name string, end *corev1.ContainerStateTerminated) Finding {
	f := Finding{Cause: causeCrash, Problem: fmt.Sprintf("container %s ended with status %d.", name, end.ExitCode), Remedy: "Read its log: kubectl logs " + p.Name + " -c " + name + " --previous."}
	lower := strings.ToLower(end.Message)
	switch {
	case end.Reason == "OOMKilled":
		f.Cause, f.Problem = causeOOM, "container "+name+" needed more memory than its limit and was killed."
		f.Remedy = "Raise resources.limits.memory, or make the program use less."
		if limit := memoryLimit(p, name); limit != "" {
			f.Evidence = append(f.Evidence, Fact{Text: "its limit is " + limit})
		}
	case end.ExitCode == exitCommandNotFound || (end.Reason == "StartError" || end.Reason == "ContainerCannotRun") && commandMissing(lower):
		f.Cause, f.Problem, f.Remedy = causeCommand, "container "+name+": its command does not exist in the image.", "Correct command and args, or the image."
	case end.ExitCode == exitNotExecutable || (end.Reason == "StartError" || end.Reason == "ContainerCannotRun") && strings.Contains(lower, "permission denied"):
		f.Cause, f.Problem, f.Remedy = causePermission, "container "+name+": its command may not be executed.", "Make the file executable, or change runAsUser."
	case end.ExitCode == exitSegfault:
		f.Cause, f.Problem = causeSegfault, "container "+name+" crashed with a segmentation fault (SIGSEGV)."
	case end.ExitCode == exitKilled:
		f.Cause, f.Problem, f.Remedy = causeKilled, "container "+name+" was killed (SIGKILL).", "Look for the reason in the events: a probe, an eviction, memory of the node."
	case end.ExitCode == 0:
		f.Cause, f.Problem = causeCompletes, "container "+name+" ends with success, and restartPolicy "+string(p.Spec.RestartPolicy)+" starts it again."
		f.Remedy = "Let the program stay in the foreground, or run it as a Job."
	}
	if end.Message != "" {
		f.Evidence = append(f.Evidence, Fact{Text: "its last message: " + oneLine(end.Message)})
	}
	return f
}

// commandMissing reports whether a runtime's message, in lower case, says that the image lacks the
// command.
func commandMissing(message string) bool {
	return strings.Contains(message, "executable file") && strings.Contains(message, "not found") || strings.Contains(message, "no such file or directory")
}

func memoryLimit(p *corev1.Pod, name string) string {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if q := c.Resources.Limits.Memory(); c.Name == name && !q.IsZero() {
			return q.String()
		}
	}
	return ""
}

// logFacts returns the last lines of a container's log.
func logFacts(s *Snapshot, p *corev1.Pod, container string, previous bool) []Fact {
	text := strings.TrimSpace(s.logTail(p.Namespace, p.Name, container, previous))
	if text == "" {
		return nil
	}
	return []Fact{{Text: "the end of its log:\n" + text}}
}

func startFailure(c *corev1.ContainerStatus) *Finding {
	message := oneLine(c.State.Waiting.Message)
	lower := strings.ToLower(message)
	f := &Finding{Cause: causeStart, Problem: "container " + c.Name + " cannot be started.", Evidence: []Fact{{Text: c.State.Waiting.Reason + ": " + message}}}
	switch {
	case commandMissing(lower):
		f.Cause, f.Problem, f.Remedy = causeCommand, "container "+c.Name+": its command does not exist in the image.", "Correct command and args, or the image."
	case strings.Contains(lower, "permission denied"):
		f.Cause, f.Problem, f.Remedy = causePermission, "container "+c.Name+": its command may not be executed.", "Make the file executable, or change runAsUser."
	}
	return f
}

// killedByProbe returns the kind of probe for which the node agent ended the container at its last
// end, whatever status the program ended with: Liveness, Startup or "".
func killedByProbe(s *Snapshot, p *corev1.Pod, container string, end *corev1.ContainerStateTerminated) string {
	for _, e := range s.events(refTo(p)) {
		if e.Reason != "Killing" || !strings.Contains(e.InvolvedObject.FieldPath, "{"+container+"}") || eventTime(e).Before(end.StartedAt.Add(-time.Second)) {
			continue
		}
		switch message := strings.ToLower(e.Message); {
		case strings.Contains(message, "failed liveness probe"):
			return "Liveness"
		case strings.Contains(message, "failed startup probe"):
			return "Startup"
		}
	}
	return ""
}

// probeEvent returns the kind of probe that failed last: Liveness, Readiness, Startup or "".
func probeEvent(s *Snapshot, p *corev1.Pod, container string) string {
	for _, e := range s.events(refTo(p)) {
		field := e.InvolvedObject.FieldPath
		if e.Reason != "Unhealthy" || field != "" && !strings.Contains(field, "{"+container+"}") {
			continue
		}
		for _, kind := range []string{"Liveness", "Startup", "Readiness"} {
			if strings.HasPrefix(e.Message, kind) {
				return kind
			}
		}
	}
	return ""
}

func probeFinding(s *Snapshot, p *corev1.Pod, c *corev1.ContainerStatus, cause, kind string) *Finding {
	f := &Finding{Cause: cause}
	switch cause {
	case causeReadiness:
		f.Problem = "container " + c.Name + " runs, and its readiness probe fails: it gets no traffic."
	case causeStartup:
		f.Problem = fmt.Sprintf("container %s runs, and its startup probe has not succeeded; restarted %s.", c.Name, plural(int(c.RestartCount), "time"))
	default:
		f.Problem = fmt.Sprintf("container %s is restarted because its %s probe fails; restarted %s.", c.Name, strings.ToLower(kind), plural(int(c.RestartCount), "time"))
	}
	f.Remedy = "Make the program answer the probe, or correct the probe's path, port and times."
	if e := s.event(refTo(p), "Unhealthy"); e != nil {
		f.Evidence = []Fact{{Text: "event Unhealthy: " + oneLine(e.Message)}}
	}
	return f
}

// running explains a container that runs and is not well.
func running(s *Snapshot, p *corev1.Pod, c *corev1.ContainerStatus) *Finding {
	last := c.LastTerminationState.Terminated
	switch {
	case c.Ready && last != nil && last.Reason == "OOMKilled" && s.Now.Sub(last.FinishedAt.Time) < recent:
		f := exitFinding(p, c.Name, last)
		f.Problem = "container " + c.Name + " was killed " + age(s.Now.Sub(last.FinishedAt.Time)) + " ago, as it needed more memory than its limit; it runs again."
		return &f
	case c.Ready:
		return nil
	}
	spec := containerSpec(p, c.Name)
	if spec == nil {
		return nil
	}
	switch {
	case spec.StartupProbe != nil && (c.Started == nil || !*c.Started):
		return probeFinding(s, p, c, causeStartup, "Startup")
	case probeEvent(s, p, c.Name) == "Liveness" && c.RestartCount > 0:
		return probeFinding(s, p, c, causeLiveness, "Liveness")
	case spec.ReadinessProbe != nil:
		return probeFinding(s, p, c, causeReadiness, "Readiness")
	}
	return &Finding{Cause: causeNotReadyYet, Problem: "container " + c.Name + " runs and is not ready.", Remedy: "Wait for the kubelet's next status, or check the node."}
}

func containerSpec(p *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func readinessGates(p *corev1.Pod) []Finding {
	for _, gate := range p.Spec.ReadinessGates {
		if c := podCondition(p, gate.ConditionType); p.Status.Phase == corev1.PodRunning && (c == nil || c.Status != corev1.ConditionTrue) {
			return one(causeReadinessGate, "its readiness gate "+string(gate.ConditionType)+" is not True.", "The controller of this gate must set the condition in the pod's status.")
		}
	}
	return nil
}

// failedPod explains a pod that has failed for good. A pod of a Job is explained by its Job too.
func failedPod(s *Snapshot, p *corev1.Pod) []Finding {
	message := oneLine(p.Status.Message)
	switch reason := p.Status.Reason; {
	case reason == "Evicted":
		f := one(causeEvicted, "it was evicted: "+message, "Set requests and limits that fit, or free the resource on the node.")
		if p.Spec.NodeName != "" {
			f[0].links = []Link{{Object: Ref{"Node", "", p.Spec.NodeName}, Only: []string{causePressure}}}
		}
		return f
	case reason == "DeadlineExceeded":
		return one(causeDeadline, "it ran longer than activeDeadlineSeconds allows.", "Raise activeDeadlineSeconds, or make the work shorter.")
	case reason != "":
		return one(causeNodeRefused, "node/"+p.Spec.NodeName+" refused it: "+reason+": "+message, "Leave the choice of the node to the scheduler, or make room on this node.")
	}
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		if end := c.State.Terminated; end != nil && end.ExitCode != 0 {
			return []Finding{*crash(s, p, c, end)}
		}
	}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		if end := c.State.Terminated; end != nil && end.ExitCode != 0 {
			return []Finding{*crash(s, p, c, end)}
		}
	}
	return one(causeFailed, "it has failed. "+message, "")
}
