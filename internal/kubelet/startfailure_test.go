package kubelet

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func TestAPodWaitsForAMissingConfigMap(t *testing.T) {
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
			t.Fatalf("no event contains %q: %q", want, b.events.All())
		}
	}
	if calls := b.cri.Log(); slices.ContainsFunc(calls, func(call string) bool { return strings.Contains(call, "main") }) {
		t.Errorf("the container was started: %q", calls)
	}
}

func TestRunAsNonRootIsRefusedIfTheImageNamesNoUser(t *testing.T) {
	b := newBench(t)
	nonRoot := true
	b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsNonRoot: &nonRoot}
	}))
	p := b.await("one", "waiting", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CreateContainerConfigError"
	})
	const want = "container has runAsNonRoot and image will run as root"
	if m := p.Status.ContainerStatuses[0].State.Waiting.Message; !strings.HasPrefix(m, want) {
		t.Errorf("message %q", m)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(strings.Join(b.events.All(), "\n"), "Error: "+want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no event gives the reason: %q", b.events.All())
		}
	}
	if calls := b.cri.Log(); slices.ContainsFunc(calls, func(call string) bool { return strings.Contains(call, "main") }) {
		t.Errorf("the container was made: %q", calls)
	}
}

func TestAMissingImageIsReported(t *testing.T) {
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
