package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// given changes the state that decide gets.
type given func(*state)

// stateOf is a pod with the container "main" of which the runtime has nothing yet.
func stateOf(changes ...given) *state {
	s := &state{
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"},
			Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		},
		observed: pleg.NewObserved(), old: &corev1.PodStatus{}, now: noon,
		crashes: map[string]crash{}, problems: map[string]problem{}, busy: map[string]bool{}, hidden: map[string]bool{},
		started: map[string]bool{}, failed: map[string]probe.Kind{},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func policy(p corev1.RestartPolicy) given { return func(s *state) { s.pod.Spec.RestartPolicy = p } }

var (
	never     = policy(corev1.RestartPolicyNever)
	onFailure = policy(corev1.RestartPolicyOnFailure)
)

func initContainers(names ...string) given {
	return func(s *state) {
		for _, name := range names {
			s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, corev1.Container{Name: name, Image: "i"})
		}
	}
}

func sidecar(name string) given {
	return func(s *state) {
		always := corev1.ContainerRestartPolicyAlways
		s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, corev1.Container{Name: name, Image: "i", RestartPolicy: &always})
	}
}

func second(name string) given {
	return func(s *state) {
		s.pod.Spec.Containers = append(s.pod.Spec.Containers, corev1.Container{Name: name, Image: "i"})
	}
}

func ephemeral(name, target string) given {
	return func(s *state) {
		s.pod.Spec.EphemeralContainers = append(s.pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "i"}, TargetContainerName: target,
		})
	}
}

// sandbox adds a sandbox; later ones are newer.
func sandbox(id string, ready bool) given {
	return func(s *state) {
		at := int64(len(s.observed.Sandboxes))
		status := &runtimeapi.PodSandboxStatus{Id: id, CreatedAt: at, State: runtimeapi.PodSandboxState_SANDBOX_READY}
		if !ready {
			status.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
		s.observed.MergeSandbox(status, noon)
	}
}

var (
	up   = sandbox("box", true)
	down = sandbox("box", false)
)

// container adds an attempt of a container with the id NAME/ATTEMPT. A running one has passed its
// startup probe.
func container(sandbox, name string, attempt uint32, at runtimeapi.ContainerState, code int32, ago time.Duration) given {
	return func(s *state) {
		s.observed.MergeContainer(&runtimeapi.ContainerStatus{
			Id: fmt.Sprintf("%s/%d", name, attempt), Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
			State: at, ExitCode: code, FinishedAt: noon.Add(-ago).UnixNano(),
		}, sandbox, noon)
		s.started[fmt.Sprintf("%s/%d", name, attempt)] = at == runtimeapi.ContainerState_CONTAINER_RUNNING
	}
}

func running(name string, attempt uint32) given {
	return container("box", name, attempt, runtimeapi.ContainerState_CONTAINER_RUNNING, 0, 0)
}

func runningIn(sandbox, name string) given {
	return container(sandbox, name, 0, runtimeapi.ContainerState_CONTAINER_RUNNING, 0, 0)
}

func created(name string, attempt uint32) given {
	return container("box", name, attempt, runtimeapi.ContainerState_CONTAINER_CREATED, 0, 0)
}

// exited adds a container that ended an hour ago.
func exited(name string, attempt uint32, code int32) given {
	return exitedAgo(name, attempt, code, time.Hour)
}

func exitedAgo(name string, attempt uint32, code int32, ago time.Duration) given {
	return container("box", name, attempt, runtimeapi.ContainerState_CONTAINER_EXITED, code, ago)
}

// reported makes the API's status say that a container ended.
func reported(name string, restarts, code int32) given {
	return func(s *state) {
		s.old.ContainerStatuses = append(s.old.ContainerStatuses, corev1.ContainerStatus{
			Name: name, ContainerID: "containerd://" + name, RestartCount: restarts,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		})
	}
}

func busy(name string) given { return func(s *state) { s.busy[name] = true } }
func inHook(id string) given { return func(s *state) { s.hidden[id] = true } }
func notStarted(id string) given {
	return func(s *state) { s.started[id] = false }
}

func crashing(name string, wait time.Duration) given {
	return func(s *state) { s.crashes[name] = crash{wait: wait, last: noon.Add(-time.Hour)} }
}

func withProblem(name, reason string, retryIn time.Duration) given {
	return func(s *state) { s.problems[name] = problem{reason: reason, message: "m", retryAt: noon.Add(retryIn)} }
}

func unhealthy(id string, kind probe.Kind) given {
	return func(s *state) { s.failed[id] = kind }
}

func probed(seconds int64) given {
	return func(s *state) {
		p := &corev1.Probe{TerminationGracePeriodSeconds: &seconds}
		s.pod.Spec.Containers[0].LivenessProbe, s.pod.Spec.Containers[0].StartupProbe = p, p
	}
}

func madeFrom(id, hash string) given {
	return func(s *state) { s.observed.Containers[id].Annotations = map[string]string{spec.AnnotationHash: hash} }
}

// summary describes a plan, in the order in which it is carried out.
func (p *plan) summary() string {
	var out []string
	if p.finished {
		out = append(out, "finished")
	}
	for _, k := range p.kill {
		text := "kill " + k.container.Id + " " + k.reason
		if k.grace != nil {
			text += fmt.Sprintf(" %ds", *k.grace)
		}
		out = append(out, text)
	}
	if p.sandbox {
		out = append(out, "sandbox")
	}
	for _, st := range p.start {
		text := fmt.Sprintf("start %s/%d", st.container.Name, st.attempt)
		if !st.after.IsZero() {
			text += " again"
		}
		if st.target != "" {
			text += " in " + st.target
		}
		out = append(out, text)
	}
	for _, name := range slices.Sorted(maps.Keys(p.waiting)) {
		out = append(out, "wait "+name+" "+p.waiting[name].Reason)
	}
	if !p.look.IsZero() {
		out = append(out, "look in "+p.look.Sub(noon).String())
	}
	return strings.Join(out, ", ")
}

// decision is a row of the tables below; its name reads as a sentence.
type decision struct {
	name  string
	given []given
	want  string
}

func check(t *testing.T, table []decision) {
	t.Helper()
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			if got := decide(stateOf(row.given...)).summary(); got != row.want {
				t.Errorf("\ngot  %q\nwant %q", got, row.want)
			}
		})
	}
}

func TestSandboxDecisions(t *testing.T) {
	check(t, []decision{
		{"a new pod gets a sandbox and its container", nil, "sandbox, start main/0"},
		{"a pod with a ready sandbox gets no other one", []given{up}, "start main/0"},
		{"a pod whose sandbox ended gets a new one", []given{down}, "sandbox, start main/0"},
		{"only the newest sandbox counts", []given{sandbox("old", true), sandbox("new", false)}, "sandbox, start main/0"},
		{"a container that runs without its sandbox is stopped first", []given{down, running("main", 0)}, "kill main/0 SandboxChanged"},
		{"a container of an older sandbox is stopped beside the new one", []given{sandbox("old", false), up, runningIn("old", "main")}, "kill main/0 SandboxChanged"},
		{"all containers of an ended sandbox are stopped, in the order of their ids",
			[]given{second("b"), down, running("main", 0), running("b", 0)}, "kill b/0 SandboxChanged, kill main/0 SandboxChanged"},
		{"a container that is being stopped already is left alone", []given{down, running("main", 0), busy("main")}, "sandbox"},
		{"a container without a known sandbox counts as the current sandbox's", []given{up, runningIn("", "main")}, ""},
		{"what ended in an ended sandbox starts again in a new one", []given{down, exited("main", 0, 1)}, "sandbox, start main/1 again"},
	})
}

func TestRestartDecisions(t *testing.T) {
	rule := func(s *state) {
		s.pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
	}
	check(t, []decision{
		{"a running container is left alone", []given{up, running("main", 0)}, ""},
		{"a container that is being started is left alone", []given{up, busy("main")}, ""},
		{"a created container that never ran is made again", []given{up, created("main", 0)}, "start main/1"},
		{"Always restarts after success", []given{up, exited("main", 0, 0)}, "start main/1 again"},
		{"Always restarts after a failure", []given{up, exited("main", 3, 1)}, "start main/4 again"},
		{"OnFailure restarts after a failure", []given{onFailure, up, exited("main", 0, 1)}, "start main/1 again"},
		{"OnFailure ends the pod after success", []given{onFailure, up, exited("main", 0, 0)}, "finished"},
		{"Never ends the pod after success", []given{never, up, exited("main", 0, 0)}, "finished"},
		{"Never ends the pod after a failure", []given{never, up, exited("main", 0, 1)}, "finished"},
		{"a rule for the exit code overrides Never", []given{never, rule, up, exited("main", 0, 42)}, "start main/1 again"},
		{"a rule for another exit code does not", []given{never, rule, up, exited("main", 0, 41)}, "finished"},
		{"an ended container waits for the others with Never", []given{never, second("b"), up, exited("main", 0, 0), running("b", 0)}, ""},
		{"a container that ended is not finished while an action is in flight", []given{never, up, exited("main", 0, 0), busy("main")}, ""},
		{"the newest attempt decides", []given{up, exited("main", 0, 1), running("main", 1)}, ""},
		{"the pod ends although its sandbox did", []given{never, down, exited("main", 0, 0)}, "finished"},
	})
}

func TestDecisionsFromTheReportedStatus(t *testing.T) {
	check(t, []decision{
		{"a reported end is final with Never when the runtime lost the container", []given{never, reported("main", 0, 1)}, "finished"},
		{"a reported end is no end with Always", []given{reported("main", 2, 0)}, "sandbox, start main/3"},
		{"a container that ended stays ended beside one that is still to start", []given{never, second("b"), up, reported("main", 0, 0)}, "start b/0"},
		{"attempts go on from the runtime's when those are higher", []given{up, exited("main", 5, 1), reported("main", 2, 1)}, "start main/6 again"},
		{"attempts go on from the reported count when that is higher", []given{up, exited("main", 1, 1), reported("main", 7, 1)}, "start main/8 again"},
	})
}

func TestInitContainerDecisions(t *testing.T) {
	two := initContainers("a", "b")
	check(t, []decision{
		{"only the first init container starts", []given{two, up}, "start a/0"},
		{"the first init container is planned along with the sandbox", []given{two}, "sandbox, start a/0"},
		{"the second waits while the first runs", []given{two, up, running("a", 0)}, ""},
		{"the second waits while the first is being started", []given{two, up, busy("a")}, ""},
		{"the second starts after the first succeeded", []given{two, up, exited("a", 0, 0)}, "start b/0"},
		{"the regular container starts after all succeeded", []given{two, up, exited("a", 0, 0), exited("b", 0, 0)}, "start main/0"},
		{"a failed one starts again with Always", []given{two, up, exited("a", 0, 1)}, "start a/1 again"},
		{"a failed one starts again with OnFailure", []given{onFailure, two, up, exited("a", 0, 1)}, "start a/1 again"},
		{"a failed one ends the pod with Never", []given{never, two, up, exited("a", 0, 1)}, "finished"},
		{"they do not run again once a regular container was made", []given{two, up, running("main", 0)}, ""},
		{"they run again in a new sandbox",
			[]given{initContainers("a"), down, exited("a", 0, 0), exited("main", 0, 1), sandbox("new", true)}, "start a/1"},
		{"before the new sandbox is there, the plan only names the containers to get images for",
			[]given{initContainers("a"), down, exited("a", 0, 0), exited("main", 0, 1)}, "sandbox, start main/1 again"},
		{"one that ended in another sandbox runs again in this one",
			[]given{initContainers("a"), sandbox("old", false), container("old", "a", 0, runtimeapi.ContainerState_CONTAINER_EXITED, 0, 0), up}, "start a/1"},
		{"a failed one of a pod whose regular container ran does not end the pod",
			[]given{never, initContainers("a"), up, exited("a", 0, 1), running("main", 0)}, ""},
	})
}

func TestSidecarDecisions(t *testing.T) {
	side := sidecar("side")
	check(t, []decision{
		{"a sidecar starts before the regular container", []given{side, up}, "start side/0"},
		{"the regular container starts once the sidecar has started", []given{side, up, running("side", 0)}, "start main/0"},
		{"the regular container waits for the sidecar's startup probe", []given{side, up, running("side", 0), notStarted("side/0")}, ""},
		{"the regular container waits for the sidecar's postStart hook", []given{side, up, running("side", 0), inHook("side/0")}, ""},
		{"the regular container waits while the sidecar is being started", []given{side, up, busy("side")}, ""},
		{"a sidecar that ended runs again beside the regular container", []given{side, up, exited("side", 0, 0), running("main", 0)}, "start side/1 again"},
		{"a sidecar runs again even with Never", []given{never, side, up, exited("side", 0, 1), running("main", 0)}, "start side/1 again"},
		{"a sidecar that ended runs again while an init container runs",
			[]given{side, initContainers("a"), up, exited("side", 0, 1), running("a", 0)}, "start side/1 again"},
		{"an init container behind a failed sidecar waits", []given{side, initContainers("a"), up, exited("side", 0, 1)}, "start side/1 again"},
		{"a sidecar does not keep a pod alive whose regular containers ended", []given{never, side, up, running("side", 0), exited("main", 0, 0)}, "finished"},
		{"a sidecar whose liveness probe failed is stopped and holds the regular container back",
			[]given{side, up, running("side", 0), unhealthy("side/0", probe.Liveness)}, "kill side/0 Liveness"},
		{"a sidecar whose liveness probe failed is stopped beside the regular container",
			[]given{side, up, running("side", 0), running("main", 0), unhealthy("side/0", probe.Liveness)}, "kill side/0 Liveness"},
		{"of two sidecars the one that ended runs again while the later one starts up",
			[]given{side, sidecar("late"), up, exited("side", 0, 1), running("late", 0)}, "start side/1 again"},
		{"an earlier sidecar that ended runs again beside a later one that is being started",
			[]given{side, sidecar("late"), up, running("side", 0), busy("late")}, ""},
	})
}

func TestBackOffDecisions(t *testing.T) {
	check(t, []decision{
		{"a container that crashed waits for its back-off", []given{up, exitedAgo("main", 1, 1, 4*time.Second), crashing("main", 10*time.Second)},
			"wait main CrashLoopBackOff, look in 6s"},
		{"a container that ended well waits too", []given{up, exitedAgo("main", 1, 0, 4*time.Second), crashing("main", 10*time.Second)},
			"wait main CrashLoopBackOff, look in 6s"},
		{"a container starts again when its back-off is over", []given{up, exitedAgo("main", 1, 1, 10*time.Second), crashing("main", 10*time.Second)},
			"start main/2 again"},
		{"the first restart does not wait", []given{up, exitedAgo("main", 0, 1, 0)}, "start main/1 again"},
		{"a waiting container does not hold the other back",
			[]given{second("b"), up, exitedAgo("main", 0, 1, time.Second), crashing("main", 10*time.Second)},
			"start b/0, wait main CrashLoopBackOff, look in 9s"},
		{"the earliest back-off says when to decide again",
			[]given{second("b"), up, exitedAgo("main", 0, 1, time.Second), exitedAgo("b", 0, 1, 2*time.Second),
				crashing("main", 20*time.Second), crashing("b", 10*time.Second)},
			"wait b CrashLoopBackOff, wait main CrashLoopBackOff, look in 8s"},
		{"an init container waits for its back-off", []given{initContainers("a"), up, exitedAgo("a", 0, 1, time.Second), crashing("a", 10*time.Second)},
			"wait a CrashLoopBackOff, look in 9s"},
		{"a sidecar waits for its back-off beside the regular container",
			[]given{sidecar("side"), up, running("main", 0), exitedAgo("side", 0, 1, time.Second), crashing("side", 10*time.Second)},
			"wait side CrashLoopBackOff, look in 9s"},
		{"a container whose image is missing waits for the next try", []given{up, withProblem("main", "ErrImagePull", 3*time.Second)},
			"wait main ErrImagePull, look in 3s"},
		{"a container whose problem is due is tried again", []given{up, withProblem("main", "ErrImagePull", 0)}, "start main/0, wait main ErrImagePull"},
		{"a problem does not delay the sandbox", []given{withProblem("main", "ErrImagePull", 3*time.Second)}, "sandbox, wait main ErrImagePull, look in 3s"},
	})
}

func TestBackOffMessageNamesContainerAndPod(t *testing.T) {
	p := decide(stateOf(up, exitedAgo("main", 0, 1, 0), crashing("main", 20*time.Second)))
	if got, want := p.waiting["main"].Message, "back-off 20s restarting failed container=main pod=p_ns(uid)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestKillDecisions(t *testing.T) {
	check(t, []decision{
		{"a failed liveness probe stops the container", []given{up, running("main", 0), unhealthy("main/0", probe.Liveness)}, "kill main/0 Liveness"},
		{"a failed startup probe stops the container", []given{up, running("main", 0), unhealthy("main/0", probe.Startup)}, "kill main/0 Startup"},
		{"a failed readiness probe does not", []given{up, running("main", 0), unhealthy("main/0", probe.Readiness)}, ""},
		{"the liveness probe's grace period goes first", []given{probed(5), up, running("main", 0), unhealthy("main/0", probe.Liveness)}, "kill main/0 Liveness 5s"},
		{"the startup probe's grace period goes first", []given{probed(7), up, running("main", 0), unhealthy("main/0", probe.Startup)}, "kill main/0 Startup 7s"},
		{"a container that is being stopped is not stopped twice",
			[]given{up, running("main", 0), unhealthy("main/0", probe.Liveness), busy("main")}, ""},
		{"a container made from another image is stopped", []given{up, running("main", 0), madeFrom("main/0", "other")}, "kill main/0 Changed"},
		{"a changed definition goes before a failed probe",
			[]given{up, running("main", 0), madeFrom("main/0", "other"), unhealthy("main/0", probe.Liveness)}, "kill main/0 Changed"},
		{"a container made from this definition stays",
			[]given{up, running("main", 0), madeFrom("main/0", spec.Hash(&corev1.Container{Name: "main", Image: "i"}))}, ""},
		{"a container without a noted definition stays", []given{up, running("main", 0), madeFrom("main/0", "")}, ""},
		{"containers in an ended sandbox are stopped also when the pod is finished",
			[]given{never, sidecar("side"), down, running("side", 0), exited("main", 0, 0)}, "finished, kill side/0 SandboxChanged"},
	})
}

func TestEphemeralContainerDecisions(t *testing.T) {
	check(t, []decision{
		{"an ephemeral container starts beside the regular one", []given{ephemeral("debug", ""), up, running("main", 0)}, "start debug/0"},
		{"it starts while an init container runs", []given{ephemeral("debug", ""), initContainers("a"), up, running("a", 0)}, "start debug/0"},
		{"it joins its running target", []given{ephemeral("debug", "main"), up, running("main", 2)}, "start debug/0 in main/2"},
		{"it waits for a target that does not run", []given{never, second("b"), ephemeral("debug", "main"), up, exited("main", 0, 0), running("b", 0)}, ""},
		{"it waits for a target that is not there", []given{ephemeral("debug", "gone"), up, running("main", 0)}, ""},
		{"it is not started twice", []given{ephemeral("debug", ""), up, running("main", 0), running("debug", 0)}, ""},
		{"it does not run again after a failure", []given{ephemeral("debug", ""), up, running("main", 0), exited("debug", 0, 1)}, ""},
		{"it does not run again when only the reported status knows its end",
			[]given{ephemeral("debug", ""), up, running("main", 0), func(s *state) {
				s.old.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debug", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
			}}, ""},
		{"it is left alone while it is being started", []given{ephemeral("debug", ""), up, running("main", 0), busy("debug")}, ""},
		{"it waits when its image is missing", []given{ephemeral("debug", ""), up, running("main", 0), withProblem("debug", "ErrImagePull", time.Second)},
			"wait debug ErrImagePull, look in 1s"},
		{"it does not keep a pod alive whose regular containers ended",
			[]given{never, ephemeral("debug", ""), up, exited("main", 0, 0), running("debug", 0)}, "finished"},
	})
}

func TestDecideChangesNothingInItsState(t *testing.T) {
	make := func() *state {
		return stateOf(sidecar("side"), ephemeral("debug", "main"), up, running("side", 0), exitedAgo("main", 0, 1, 0),
			crashing("main", 10*time.Second), withProblem("debug", "ErrImagePull", time.Second))
	}
	s, fresh := make(), make()
	first, second := decide(s).summary(), decide(s).summary()
	if first != second {
		t.Errorf("two decisions differ:\n%s\n%s", first, second)
	}
	for _, pair := range [][2]any{{s.pod, fresh.pod}, {s.old, fresh.old}, {s.crashes, fresh.crashes}, {s.problems, fresh.problems}, {s.busy, fresh.busy}} {
		if fmt.Sprintf("%+v", pair[0]) != fmt.Sprintf("%+v", pair[1]) {
			t.Errorf("decide changed %+v to %+v", pair[1], pair[0])
		}
	}
}

func TestCrashBackOffDoublesUpToItsMaximumAndStartsAfreshAfterAQuietTime(t *testing.T) {
	c := crash{}
	now := noon
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		now = now.Add(time.Minute)
		if c = c.next(now, now, crashBackoffMax); c.wait != want*time.Second || c.last != now {
			t.Fatalf("back-off %+v, want %ds since %s", c, want, now)
		}
	}
	if c := c.next(now.Add(2*crashBackoffMax), now.Add(2*crashBackoffMax), crashBackoffMax); c.wait != crashBackoffMax {
		t.Errorf("after exactly ten quiet minutes the back-off is %s", c.wait)
	}
	if c := c.next(now.Add(time.Hour), now.Add(2*crashBackoffMax+1), crashBackoffMax); c.wait != crashBackoff {
		t.Errorf("after more than ten quiet minutes the back-off is %s", c.wait)
	}
}

func TestDeadlinePassesAfterActiveDeadlineSeconds(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	for name, tc := range map[string]struct {
		deadline *int64
		after    time.Duration
		want     bool
	}{
		"without a deadline it never passes":      {nil, 1000 * time.Hour, false},
		"before the deadline it has not passed":   {seconds(5), 5*time.Second - 1, false},
		"exactly at the deadline it has passed":   {seconds(5), 5 * time.Second, true},
		"after the deadline it has passed":        {seconds(5), time.Minute, true},
		"a deadline of no seconds passes at once": {seconds(0), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: tc.deadline}}
			if got := pastDeadline(pod, noon, noon.Add(tc.after)); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
