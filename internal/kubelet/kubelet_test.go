package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/fake"
	"github.com/knarr-project/knarr/internal/volume"
)

// folders is a volume manager that knows emptyDir only.
type folders struct{ fail func(pod *corev1.Pod) error }

func (f folders) Mount(_ context.Context, pod *corev1.Pod, podDir string) (map[string]volume.MountPoint, error) {
	if f.fail != nil {
		if err := f.fail(pod); err != nil {
			return nil, err
		}
	}
	out := map[string]volume.MountPoint{}
	for _, v := range pod.Spec.Volumes {
		path := filepath.Join(podDir, "volumes", v.Name)
		if err := os.MkdirAll(path, 0o777); err != nil {
			return nil, err
		}
		out[v.Name] = volume.MountPoint{HostPath: path}
	}
	return out, nil
}

func (folders) Refresh(context.Context, *corev1.Pod) error { return nil }

func (folders) Freeze(types.UID) {}
func (folders) Unmount(_ context.Context, _ types.UID, podDir string) error {
	return os.RemoveAll(filepath.Join(podDir, "volumes"))
}

// bench is a node agent between a fake API and a fake runtime.
type bench struct {
	t      *testing.T
	api    *fake.API
	cri    *fake.CRI
	events *fake.Events
	k      *Kubelet
	cfg    Config
	stop   func()
}

func newBench(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()
	b := &bench{t: t, api: fake.NewAPI(), cri: fake.NewCRI(), events: &fake.Events{}}
	b.cfg = Config{
		NodeName: "node", RootDir: t.TempDir(), Client: b.api, Events: b.events, Runtime: b.cri, Images: fake.Images{}, Volumes: folders{},
		ClusterDNS: []string{"10.0.0.10"}, ClusterDomain: "cluster.local", NoCgroups: true, Listen: "-", NodeIPs: []string{"192.0.2.1"},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), EvictionHard: map[string]string{},
	}
	for _, fn := range change {
		fn(b)
	}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *bench) start() {
	b.t.Helper()
	k, err := New(b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.k = k
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
		b.stop = func() {}
	}
}

// pod makes a pod of containers given as "name" or "name:image".
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: "node", TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
		},
	}
	for _, fn := range change {
		fn(p)
	}
	return p
}

func (b *bench) create(p *corev1.Pod) *corev1.Pod {
	b.t.Helper()
	made, err := client.Create(b.t.Context(), client.Interface(b.api), p)
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

// await waits for the API's version of a pod to be as wanted.
func (b *bench) await(name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	b.t.Helper()
	var p *corev1.Pod
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		var err error
		if p, err = client.Get[*corev1.Pod](b.t.Context(), b.api, "default", name); err == nil && ok(p) {
			return p
		}
	}
	b.t.Fatalf("pod %s did not become %s.\nstatus: %s\ncalls: %q\nevents: %s", name, what, summary(p), b.cri.Log(), strings.Join(b.events.All(), "\n  "))
	return nil
}

func (b *bench) gone(name string) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if _, err := client.Get[*corev1.Pod](b.t.Context(), b.api, "default", name); err != nil {
			return
		}
	}
	b.t.Fatalf("pod %s is not gone; calls: %q", name, b.cri.Log())
}

func (b *bench) delete(name string) {
	b.t.Helper()
	if err := client.Delete[*corev1.Pod](b.t.Context(), b.api, "default", name, metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

func summary(p *corev1.Pod) string {
	if p == nil {
		return "none"
	}
	s := fmt.Sprintf("%s %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for _, c := range list {
			s += fmt.Sprintf("\n  %s ready=%v restarts=%d state=%+v last=%+v", c.Name, c.Ready, c.RestartCount, c.State, c.LastTerminationState)
		}
	}
	for _, c := range p.Status.Conditions {
		s += fmt.Sprintf("\n  %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return s
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func phase(want corev1.PodPhase) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p.Status.Phase == want }
}

func never(p *corev1.Pod)     { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
func onFailure(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }

// exits makes containers end by themselves: name → exit code.
func exits(codes map[string]int32) func(*bench) {
	return func(b *bench) {
		b.cri.Behave = func(c *runtimeapi.ContainerConfig) fake.Behavior {
			if code, ok := codes[c.Metadata.Name]; ok {
				return fake.Behavior{ExitAfter: time.Millisecond, ExitCode: code}
			}
			return fake.Behavior{}
		}
	}
}

func TestAPodRunsIsDeletedAndLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.create(pod("one"))
	p := b.await("one", "ready", ready)
	if p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" || p.Status.HostIP != "192.0.2.1" || p.Status.StartTime == nil || p.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("status is incomplete: %+v", p.Status)
	}
	c := p.Status.ContainerStatuses[0]
	if !strings.HasPrefix(c.ContainerID, "fake://container") || c.Started == nil || !*c.Started || c.RestartCount != 0 {
		t.Errorf("container status is incomplete: %+v", c)
	}
	b.delete("one")
	b.gone("one")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		sandboxes, containers := b.cri.Counts()
		entries, _ := os.ReadDir(filepath.Join(b.cfg.RootDir, "pods"))
		if sandboxes+containers+len(entries)+len(b.k.Workers()) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %d sandboxes, %d containers, folders %v, %d workers", sandboxes, containers, entries, len(b.k.Workers()))
		}
	}
}

func TestPhasesOfPodsThatEndByThemselves(t *testing.T) {
	for name, c := range map[string]struct {
		policy func(*corev1.Pod)
		code   int32
		want   corev1.PodPhase
	}{
		"Never and success succeeds":     {never, 0, corev1.PodSucceeded},
		"Never and failure fails":        {never, 3, corev1.PodFailed},
		"OnFailure and success succeeds": {onFailure, 0, corev1.PodSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, exits(map[string]int32{"main": c.code}))
			b.create(pod("one", c.policy))
			p := b.await("one", string(c.want), phase(c.want))
			if st := p.Status.ContainerStatuses[0].State.Terminated; st == nil || st.ExitCode != c.code {
				t.Errorf("container state: %+v", p.Status.ContainerStatuses[0].State)
			}
			b.await("one", "released", func(p *corev1.Pod) bool {
				return slices.Contains(b.cri.Log(), "stop sandbox one")
			})
			b.delete("one")
			b.gone("one")
		})
	}
}

func TestACrashingContainerIsRestartedOnceAndThenBacksOff(t *testing.T) {
	b := newBench(t, exits(map[string]int32{"main": 1}))
	b.create(pod("one"))
	p := b.await("one", "in CrashLoopBackOff", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	c := p.Status.ContainerStatuses[0]
	if c.RestartCount != 1 || c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 1 {
		t.Errorf("container status: %+v", c)
	}
	if want := "back-off 10s restarting failed container=main pod=one_default(" + string(p.UID) + ")"; c.State.Waiting.Message != want {
		t.Errorf("message %q, want %q", c.State.Waiting.Message, want)
	}
	if p.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s, want Running", p.Status.Phase)
	}
	events := strings.Join(b.events.All(), "\n")
	if want := "Back-off restarting failed container main in pod one_default(" + string(p.UID) + ")"; strings.Count(events, want) != 1 {
		t.Errorf("not one event %q in\n%s", want, events)
	}
}

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

func TestARestartedNodeAgentAdoptsWhatRuns(t *testing.T) {
	b := newBench(t)
	b.create(pod("one"))
	before := b.await("one", "ready", ready)
	b.create(pod("two"))
	b.await("two", "ready", ready)
	b.stop()
	// Two is deleted by force while nobody looks.
	zero := int64(0)
	if err := client.Delete[*corev1.Pod](t.Context(), b.api, "default", "two", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	b.start()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if sandboxes, _ := b.cri.Counts(); sandboxes == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the orphan is still there: %q", b.cri.Log())
		}
	}
	after := b.await("one", "ready", ready)
	if a, c := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; a.ContainerID != c.ContainerID || c.RestartCount != 0 {
		t.Errorf("container was %s, is %s with %d restarts", a.ContainerID, c.ContainerID, c.RestartCount)
	}
}

func TestALostSandboxIsMadeAnew(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.cri.Behave = func(c *runtimeapi.ContainerConfig) fake.Behavior {
			if c.Metadata.Name == "init" {
				return fake.Behavior{ExitAfter: -1}
			}
			return fake.Behavior{}
		}
	})
	b.create(pod("one", func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "i"}} }))
	b.await("one", "ready", ready)
	b.cri.KillSandboxes()
	p := b.await("one", "restarted", func(p *corev1.Pod) bool { return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })
	log := b.cri.Log()
	if !slices.Contains(log, "sandbox one-1") || !slices.Contains(log, "start init-1") {
		t.Errorf("calls: %q", log)
	}
	if p.Status.InitContainerStatuses[0].RestartCount != 1 {
		t.Errorf("init container: %+v", p.Status.InitContainerStatuses[0])
	}
}

func TestAPodThatDoesNotFitFails(t *testing.T) {
	b := newBench(t, func(b *bench) { b.cfg.MaxPods = 1 })
	b.create(pod("one"))
	b.await("one", "ready", ready)
	b.create(pod("two"))
	p := b.await("two", "failed", phase(corev1.PodFailed))
	if p.Status.Reason != "OutOfpods" || !strings.HasPrefix(p.Status.Message, "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1") {
		t.Errorf("reason %q message %q", p.Status.Reason, p.Status.Message)
	}
}

func TestAPodWhoseHostPortIsTakenFails(t *testing.T) {
	onPort := func(address string, protocol corev1.Protocol) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, HostIP: address, Protocol: protocol}}
		}
	}
	b := newBench(t)
	b.create(pod("one", onPort("192.0.2.1", corev1.ProtocolTCP)))
	b.await("one", "ready", ready)
	for name, change := range map[string]func(*corev1.Pod){
		"other-address": onPort("192.0.2.2", corev1.ProtocolTCP), "other-protocol": onPort("192.0.2.1", corev1.ProtocolUDP),
	} {
		b.create(pod(name, change))
		b.await(name, "ready", ready)
	}
	b.create(pod("all-addresses", onPort("", corev1.ProtocolTCP)))
	p := b.await("all-addresses", "failed", phase(corev1.PodFailed))
	if p.Status.Reason != "NodePorts" || p.Status.Message != "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports" {
		t.Errorf("reason %q message %q", p.Status.Reason, p.Status.Message)
	}
	b.delete("one")
	b.gone("one")
	b.delete("other-address")
	b.gone("other-address")
	b.create(pod("later", onPort("0.0.0.0", corev1.ProtocolTCP)))
	b.await("later", "ready", ready)
}

func TestActiveDeadlineFailsThePod(t *testing.T) {
	b := newBench(t)
	one := int64(1)
	b.create(pod("one", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &one }))
	p := b.await("one", "failed", phase(corev1.PodFailed))
	if p.Status.Reason != "DeadlineExceeded" {
		t.Errorf("reason %q", p.Status.Reason)
	}
}

func TestAMissingConfigMapIsToldAndWaitedFor(t *testing.T) {
	b := newBench(t)
	b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	}))
	p := b.await("one", "waiting", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CreateContainerConfigError"
	})
	if m := p.Status.ContainerStatuses[0].State.Waiting.Message; m != `configmap "settings" not found` {
		t.Errorf("message %q", m)
	}
	if _, err := client.Create(t.Context(), client.Interface(b.api), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"A": "b"}}); err != nil {
		t.Fatal(err)
	}
	b.await("one", "ready", ready)
	found := false
	for _, e := range b.cri.Config("main", 0).Envs {
		found = found || e.Key == "A" && string(e.Value) == "b"
	}
	if !found {
		t.Errorf("environment: %v", b.cri.Config("main", 0).Envs)
	}
}

func TestAPodDoesNotRunWithoutTheDevicesOfItsClaims(t *testing.T) {
	b := newBench(t)
	name := "gpu"
	p := b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r", ResourceClaimName: &name}}
	}))
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "r", Driver: "gpu.example.com", Pool: "p", Device: "d"},
	}}}
	if _, err := client.Create(t.Context(), client.Interface(b.api), claim); err != nil {
		t.Fatal(err)
	}
	const want = "DRA driver gpu.example.com is not registered"
	for deadline := time.Now().Add(time.Minute); !strings.Contains(strings.Join(b.events.All(), "\n"), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no event says %q: %q", want, b.events.All())
		}
	}
	if calls := b.cri.Log(); slices.ContainsFunc(calls, func(call string) bool { return strings.Contains(call, "main") }) {
		t.Errorf("the container was started: %q", calls)
	}
}

func TestMissingImagesAreTold(t *testing.T) {
	b := newBench(t)
	b.create(pod("one", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "missing" }))
	b.await("one", "waiting", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "ErrImagePull"
	})
	b.await("one", "backing off", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].State.Waiting.Reason == "ImagePullBackOff"
	})
	b.delete("one")
	b.gone("one")
}

func TestAPodDeletedBeforeItStartedGoesAtOnce(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.cfg.Volumes = folders{fail: func(*corev1.Pod) error { return fmt.Errorf("no") }}
	})
	b.create(pod("one"))
	b.await("one", "creating", func(p *corev1.Pod) bool { return len(p.Status.ContainerStatuses) > 0 })
	b.delete("one")
	b.gone("one")
}

func TestAShorterGracePeriodShortensTheEnd(t *testing.T) {
	long := int64(60)
	b := newBench(t, func(b *bench) {
		b.cri.Behave = func(*runtimeapi.ContainerConfig) fake.Behavior { return fake.Behavior{Stubborn: true} }
	})
	b.create(pod("one", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &long }))
	b.await("one", "ready", ready)
	b.delete("one")
	b.await("one", "stopping", func(*corev1.Pod) bool { return slices.Contains(b.cri.Log(), "stop main-0") })
	one := int64(1)
	if err := client.Delete[*corev1.Pod](t.Context(), b.api, "default", "one", metav1.DeleteOptions{GracePeriodSeconds: &one}); err != nil {
		t.Fatal(err)
	}
	b.gone("one")
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

func TestStaticPodsRunHaveMirrorsAndFollowTheirFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write := func(command string) {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: main, image: i:1, command: [" + command + "]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	b := newBench(t, func(b *bench) { b.cfg.StaticPodPath = dir })
	mirror := b.await("web-node", "ready", ready)
	if mirror.Annotations["kubernetes.io/config.mirror"] == "" || len(mirror.OwnerReferences) != 1 || mirror.OwnerReferences[0].Kind != "Node" {
		t.Errorf("mirror: %+v", mirror.ObjectMeta)
	}
	// Deleting the mirror deletes only the mirror.
	b.delete("web-node")
	second := b.await("web-node", "mirrored again", func(p *corev1.Pod) bool { return p.UID != mirror.UID && ready(p) })
	if c := second.Status.ContainerStatuses[0]; c.ContainerID != mirror.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the container was replaced: %s", c.ContainerID)
	}
	write("two")
	b.await("web-node", "changed", func(p *corev1.Pod) bool {
		return ready(p) && p.Annotations["kubernetes.io/config.mirror"] != mirror.Annotations["kubernetes.io/config.mirror"]
	})
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b.gone("web-node")
}

func cpu(q string) corev1.ResourceRequirements {
	l := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
	return corev1.ResourceRequirements{Requests: l, Limits: l}
}

// resize changes the resources of a pod's first container as the resize subresource does.
func (b *bench) resize(name string, r corev1.ResourceRequirements) {
	b.t.Helper()
	current, err := client.Get[*corev1.Pod](b.t.Context(), b.api, "default", name)
	if err != nil {
		b.t.Fatal(err)
	}
	update := current.DeepCopy()
	update.Generation++
	update.Spec.Containers[0].Resources = r
	if _, err := client.Update(b.t.Context(), client.Interface(b.api), update); err != nil {
		b.t.Fatal(err)
	}
}

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func TestResizeInPlace(t *testing.T) {
	b := newBench(t)
	b.create(pod("one", func(p *corev1.Pod) { p.Spec.Containers[0].Resources = cpu("100m") }))
	b.await("one", "ready", ready)
	b.resize("one", cpu("200m"))
	p := b.await("one", "resized", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return p.Status.ObservedGeneration == 2 && s.Resources.Limits.Cpu().MilliValue() == 200 && condition(p, corev1.PodResizeInProgress) == nil
	})
	if s := p.Status.ContainerStatuses[0]; s.RestartCount != 0 || s.AllocatedResources.Cpu().MilliValue() != 200 {
		t.Errorf("status: %+v", s)
	}
	if !slices.Contains(b.cri.Log(), "resize main-0 cpu=204 memory=-1") {
		t.Errorf("calls: %q", b.cri.Log())
	}
	b.resize("one", cpu("100000"))
	p = b.await("one", "told that it is infeasible", func(p *corev1.Pod) bool { return condition(p, corev1.PodResizePending) != nil })
	if c := condition(p, corev1.PodResizePending); c.Reason != "Infeasible" || !strings.HasPrefix(c.Message, "Node didn't have enough capacity: cpu, requested: 100000000") {
		t.Errorf("condition: %+v", c)
	}
	if s := p.Status.ContainerStatuses[0]; s.AllocatedResources.Cpu().MilliValue() != 200 {
		t.Errorf("allocated: %+v", s.AllocatedResources)
	}
	b.resize("one", cpu("200m"))
	b.await("one", "back", func(p *corev1.Pod) bool { return condition(p, corev1.PodResizePending) == nil })
}

func TestResizeByRestart(t *testing.T) {
	b := newBench(t)
	b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = cpu("100m")
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
	}))
	b.await("one", "ready", ready)
	b.resize("one", cpu("200m"))
	b.await("one", "restarted", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return ready(p) && s.RestartCount == 1 && s.Resources.Limits.Cpu().MilliValue() == 200 && condition(p, corev1.PodResizeInProgress) == nil
	})
}
