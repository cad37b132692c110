package kubelet

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
