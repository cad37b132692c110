package kubelet

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/fake"
)

func TestAPodThatDoesNotFitFails(t *testing.T) {
	b := newBench(t, func(b *bench) { b.cfg.Settings.MaxPods = 1 })
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

func TestAForceDeletedPodGivesItsHostPortToTheNextOne(t *testing.T) {
	onPort := func(p *corev1.Pod) {
		grace := int64(5)
		p.Spec.TerminationGracePeriodSeconds = &grace
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
	}
	b := newBench(t, func(b *bench) {
		b.cri.Behave = func(*runtimeapi.ContainerConfig) fake.Behavior { return fake.Behavior{Stubborn: true} }
	})
	b.create(pod("one", onPort))
	b.await("one", "ready", ready)
	if err := client.Delete[*corev1.Pod](t.Context(), b.api, "default", "one", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	b.create(pod("two", onPort))
	p := b.await("two", "ready or failed", func(p *corev1.Pod) bool { return ready(p) || p.Status.Phase == corev1.PodFailed })
	if !ready(p) {
		t.Errorf("the second pod is %s: %s", p.Status.Phase, p.Status.Message)
	}
	if slices.Contains(b.cri.Log(), "remove sandbox one") {
		t.Log("the first pod had ended before; the test shows nothing on this machine")
	}
}

func TestAPodThatNeedsAMissingFeatureFails(t *testing.T) {
	b := newBench(t)
	b.create(pod("one", func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, new(bool) }))
	p := b.await("one", "failed", phase(corev1.PodFailed))
	if p.Status.Reason != "PodFeatureUnsupported" ||
		p.Status.Message != "Pod was rejected: Pod requires node features that are not available: UserNamespacesHostNetworkSupport" {
		t.Errorf("reason %q message %q", p.Status.Reason, p.Status.Message)
	}
}
