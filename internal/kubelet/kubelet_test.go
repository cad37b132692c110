package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/fake"
)

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

func TestARestartedNodeAgentAdoptsWhatRuns(t *testing.T) {
	b := newBench(t)
	b.create(pod("one"))
	before := b.await("one", "ready", ready)
	b.create(pod("two"))
	b.await("two", "ready", ready)
	b.stop()
	// Pod two is force-deleted while no node agent runs.
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

func TestALostSandboxIsRecreated(t *testing.T) {
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

func TestActiveDeadlineFailsThePod(t *testing.T) {
	b := newBench(t)
	one := int64(1)
	b.create(pod("one", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &one }))
	p := b.await("one", "failed", phase(corev1.PodFailed))
	if p.Status.Reason != "DeadlineExceeded" {
		t.Errorf("reason %q", p.Status.Reason)
	}
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

func TestStaticPodsHaveMirrorsAndFollowTheirManifests(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write := func(command string) {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: main, image: i:1, command: [" + command + "]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	b := newBench(t, func(b *bench) { b.cfg.Settings.StaticPodPath = dir })
	mirror := b.await("web-node", "ready", ready)
	if mirror.Annotations["kubernetes.io/config.mirror"] == "" || len(mirror.OwnerReferences) != 1 || mirror.OwnerReferences[0].Kind != "Node" {
		t.Errorf("mirror: %+v", mirror.ObjectMeta)
	}
	if s := mirror.Status; s.ObservedGeneration != 0 || s.Conditions[0].ObservedGeneration != 0 {
		t.Errorf("the generation of the mirror is shown as that of the static pod: %d, %d", s.ObservedGeneration, s.Conditions[0].ObservedGeneration)
	}
	// Deleting the mirror pod does not end the static pod.
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
