package kubelet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/knarr-project/knarr/internal/client"
)

func TestInitContainersRunInOrderBeforeTheOthers(t *testing.T) {
	b := newBench(t, exits(map[string]int32{"first": 0, "second": 0}))
	b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "i"}, {Name: "second", Image: "i"}}
	}))
	p := b.await("one", "ready", ready)
	var starts []string
	for _, c := range b.cri.Log() {
		if s, ok := strings.CutPrefix(c, "start "); ok {
			starts = append(starts, s)
		}
	}
	if want := []string{"first-0", "second-0", "main-0"}; !slices.Equal(starts, want) {
		t.Errorf("started %q, want %q", starts, want)
	}
	for _, s := range p.Status.InitContainerStatuses {
		if !s.Ready || s.State.Terminated == nil || s.State.Terminated.Reason != "Completed" {
			t.Errorf("init container: %+v", s)
		}
	}
}

func TestAFailedInitContainerFailsAPodThatNeverRestarts(t *testing.T) {
	b := newBench(t, exits(map[string]int32{"first": 1}))
	b.create(pod("one", never, func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "i"}}
	}))
	p := b.await("one", "failed", phase(corev1.PodFailed))
	if w := p.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "PodInitializing" {
		t.Errorf("main container: %+v", p.Status.ContainerStatuses[0].State)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodInitialized && (c.Status != corev1.ConditionFalse || c.Message != "containers with incomplete status: [first]") {
			t.Errorf("Initialized: %+v", c)
		}
	}
}

func TestSidecarsStartFirstAndStopLastInReverse(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	b := newBench(t)
	b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "a", Image: "i", RestartPolicy: &always}, {Name: "b", Image: "i", RestartPolicy: &always}}
	}))
	b.await("one", "ready", ready)
	b.delete("one")
	b.gone("one")
	var got []string
	for _, c := range b.cri.Log() {
		if strings.HasPrefix(c, "start ") || strings.HasPrefix(c, "stop ") && !strings.HasPrefix(c, "stop sandbox") {
			got = append(got, c)
		}
	}
	if want := []string{"start a-0", "start b-0", "start main-0", "stop main-0", "stop b-0", "stop a-0"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestAPodWithSidecarsSucceedsWhenTheSidecarsHaveEnded(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	b := newBench(t, exits(map[string]int32{"main": 0}))
	b.create(pod("one", never, func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "side", Image: "i", RestartPolicy: &always}}
	}))
	b.await("one", "succeeded", phase(corev1.PodSucceeded))
	if !slices.Contains(b.cri.Log(), "stop side-0") {
		t.Errorf("the sidecar was not stopped: %q", b.cri.Log())
	}
}

func TestPreStopRunsBeforeTheStopSignal(t *testing.T) {
	b := newBench(t)
	b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}}
	}))
	b.await("one", "ready", ready)
	b.delete("one")
	b.gone("one")
	log := b.cri.Log()
	if i, j := slices.Index(log, "exec main-0 [bye]"), slices.Index(log, "stop main-0"); i < 0 || j < i {
		t.Errorf("calls: %q", log)
	}
}

func TestAPodIsNotReadyBeforeItsPostStartHookIsDone(t *testing.T) {
	release := make(chan struct{})
	b := newBench(t, func(b *bench) {
		b.cri.OnExec = func(_ string, cmd []string) error {
			if cmd[0] == "hello" {
				<-release
			}
			return nil
		}
	})
	b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"hello"}}}}
	}))
	b.await("one", "creating", func(p *corev1.Pod) bool { return slices.Contains(b.cri.Log(), "exec main-0 [hello]") })
	time.Sleep(30 * time.Millisecond)
	if p, _ := client.Get[*corev1.Pod](t.Context(), b.api, "default", "one"); ready(p) || p.Status.Phase != corev1.PodPending {
		t.Errorf("before the hook is done: %s", summary(p))
	}
	close(release)
	b.await("one", "ready", ready)
}

func TestLivenessFailureRestartsTheContainer(t *testing.T) {
	fail := true
	b := newBench(t, func(b *bench) {
		b.cri.OnExec = func(_ string, cmd []string) error {
			if cmd[0] == "alive" && fail {
				fail = false
				return utilexec.CodeExitError{Err: fmt.Errorf("no"), Code: 1}
			}
			return nil
		}
	})
	b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"alive"}}}, FailureThreshold: 1}
	}))
	b.await("one", "restarted", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount == 1 && ready(p)
	})
	events := strings.Join(b.events.All(), "\n")
	for _, want := range []string{"Unhealthy one: Liveness probe failed:", "Killing one: Container main failed liveness probe, will be restarted"} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %q in\n%s", want, events)
		}
	}
}

func TestEphemeralContainersAreStartedOnce(t *testing.T) {
	b := newBench(t, exits(map[string]int32{"debug": 0}))
	made := b.create(pod("one"))
	b.await("one", "ready", ready)
	current, _ := client.Get[*corev1.Pod](t.Context(), b.api, "default", made.Name)
	update := current.DeepCopy()
	update.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "i"}, TargetContainerName: "main"}}
	if _, err := client.Update(t.Context(), client.Interface(b.api), update); err != nil {
		t.Fatal(err)
	}
	b.await("one", "debugged", func(p *corev1.Pod) bool {
		s := p.Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Terminated != nil
	})
	time.Sleep(20 * time.Millisecond)
	n := 0
	for _, c := range b.cri.Log() {
		if strings.HasPrefix(c, "start debug") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("started %d times", n)
	}
	if target := b.cri.Config("debug", 0).Linux.SecurityContext.NamespaceOptions; target.Pid != runtimeapi.NamespaceMode_TARGET || target.TargetId == "" {
		t.Errorf("namespaces: %v", target)
	}
}
