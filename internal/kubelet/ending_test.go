package kubelet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/fake"
	"github.com/knarr-project/knarr/internal/kubelet/shutdown"
)

// goingDown makes the machine of a bench go down with the node agent.
func goingDown(b *bench) {
	b.cfg.Settings.ShutdownGracePeriod.Duration = time.Minute
	b.cfg.Settings.ShutdownGracePeriodCriticalPods.Duration = 10 * time.Second
	b.cfg.Logind = func(context.Context) (shutdown.Logind, error) { return nil, errors.ErrUnsupported }
	b.cfg.Halting = func() bool { return true }
}

func TestTheMachinesShutdownEndsPodsAndRefusesNewOnes(t *testing.T) {
	b := newBench(t, goingDown)
	b.create(pod("one"))
	b.await("one", "ready", ready)
	b.k.shutdown.Stop(t.Context())
	p := b.await("one", "failed", phase(corev1.PodFailed))
	if p.Status.Reason != "Terminated" || p.Status.Message != "Pod was terminated in response to imminent node shutdown." {
		t.Errorf("status: %s", summary(p))
	}
	if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
	}) {
		t.Errorf("no DisruptionTarget: %s", summary(p))
	}
	b.create(pod("two"))
	if p := b.await("two", "refused", phase(corev1.PodFailed)); p.Status.Reason != "NodeShutdown" {
		t.Errorf("status: %s", summary(p))
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		n, err := client.Get[*corev1.Node](t.Context(), b.api, "", "node")
		if err == nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && c.Message == "node is shutting down"
		}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the node's conditions: %+v", n.Status.Conditions)
		}
	}
}

func TestAShutdownShortensTheEndOfAPodThatIsEnding(t *testing.T) {
	b := newBench(t, goingDown, func(b *bench) {
		b.cfg.Settings.ShutdownGracePeriod.Duration, b.cfg.Settings.ShutdownGracePeriodCriticalPods.Duration = 4*time.Second, time.Second
		b.cri.Behave = func(*runtimeapi.ContainerConfig) fake.Behavior { return fake.Behavior{Stubborn: true} }
	})
	long := int64(600)
	b.create(pod("one", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &long }))
	b.await("one", "ready", ready)
	b.delete("one")
	b.await("one", "stopping", func(*corev1.Pod) bool { return slices.Contains(b.cri.Log(), "stop main-0") })
	b.k.shutdown.Stop(t.Context())
	b.gone("one")
}
