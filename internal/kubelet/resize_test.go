package kubelet

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/knarr-project/knarr/internal/client"
)

func cpu(q string) corev1.ResourceRequirements {
	l := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
	return corev1.ResourceRequirements{Requests: l, Limits: l}
}

// resize changes the resources of a pod's first container through the resize subresource.
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
	p = b.await("one", "reported as infeasible", func(p *corev1.Pod) bool { return condition(p, corev1.PodResizePending) != nil })
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

func TestAMemoryLimitBelowTheUsageIsNotApplied(t *testing.T) {
	memory := func(q string) corev1.ResourceRequirements {
		l := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(q)}
		return corev1.ResourceRequirements{Requests: l, Limits: l}
	}
	b := newBench(t)
	b.create(pod("one", func(p *corev1.Pod) { p.Spec.Containers[0].Resources = memory("4Mi") }))
	b.await("one", "ready", ready)
	b.resize("one", memory("10Ki"))
	p := b.await("one", "in error", func(p *corev1.Pod) bool {
		c := condition(p, corev1.PodResizeInProgress)
		return c != nil && c.Reason == corev1.PodReasonError
	})
	if c := condition(p, corev1.PodResizeInProgress); !strings.Contains(c.Message, "memory limit (10240) below current usage (1048576)") {
		t.Errorf("condition: %+v", c)
	}
	b.resize("one", memory("3Mi"))
	b.await("one", "resized", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].Resources.Limits.Memory().Value() == 3<<20 && condition(p, corev1.PodResizeInProgress) == nil
	})
}

func TestAPodLevelResizeReachesContainersWithoutLimits(t *testing.T) {
	b := newBench(t)
	b.create(pod("one", func(p *corev1.Pod) {
		r := cpu("100m")
		p.Spec.Resources = &r
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "restarts", Image: "image",
			ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}})
	}))
	b.await("one", "ready", ready)
	if got := b.cri.Config("main", 0).Linux.Resources.CpuQuota; got != 10000 {
		t.Errorf("quota %d", got)
	}
	current, err := client.Get[*corev1.Pod](t.Context(), b.api, "default", "one")
	if err != nil {
		t.Fatal(err)
	}
	update := current.DeepCopy()
	update.Generation++
	r := cpu("200m")
	update.Spec.Resources = &r
	if _, err := client.Update(t.Context(), client.Interface(b.api), update); err != nil {
		t.Fatal(err)
	}
	p := b.await("one", "resized", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.Resources.Limits.Cpu().MilliValue() == 200 && condition(p, corev1.PodResizeInProgress) == nil
	})
	if counts := restartCounts(p); counts["main"] != 0 || counts["restarts"] != 1 {
		t.Errorf("restarts: %v", counts)
	}
	if got := b.cri.Config("restarts", 1).Linux.Resources.CpuQuota; got != 20000 {
		t.Errorf("quota %d", got)
	}
	if q := p.Status.AllocatedResources[corev1.ResourceCPU]; q.MilliValue() != 200 {
		t.Errorf("allocated %v", p.Status.AllocatedResources)
	}
}
