package spec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestSwapOfContainers(t *testing.T) {
	const gi = 1 << 30
	limited := Machine{MemoryCapacity: 4 * gi, CgroupV2: true, LimitsSwap: true, PodSwap: 2 * gi}
	with := func(change func(*Machine)) Machine {
		m := limited
		change(&m)
		return m
	}
	critical := int32(2_000_000_000)
	for name, c := range map[string]struct {
		machine        Machine
		request, limit string
		priority       *int32
		want           string // "-" means that the file is not written
	}{
		"a quarter of the memory gets a quarter of the swap": {machine: limited, request: "1Gi", want: "536870912"},
		"a larger limit changes nothing":                     {machine: limited, request: "1Gi", limit: "2Gi", want: "536870912"},
		"a request that is the limit":                        {machine: limited, request: "1Gi", limit: "1Gi", want: "0"},
		"no request":                                         {machine: limited, want: "0"},
		"a critical pod":                                     {machine: limited, request: "1Gi", priority: &critical, want: "0"},
		"NoSwap":                                             {machine: with(func(m *Machine) { m.PodSwap = 0 }), request: "1Gi", want: "0"},
		"a kernel that cannot limit swap":                    {machine: with(func(m *Machine) { m.LimitsSwap = false }), request: "1Gi", want: "-"},
		"cgroup v1":                                          {machine: with(func(m *Machine) { m.CgroupV2, m.LimitsSwap = false, false }), request: "1Gi", want: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
			if c.request != "" {
				r.Requests[corev1.ResourceMemory] = resource.MustParse(c.request)
			}
			if c.limit != "" {
				r.Limits[corev1.ResourceMemory] = resource.MustParse(c.limit)
			}
			pod := &corev1.Pod{Spec: corev1.PodSpec{Priority: c.priority, Containers: []corev1.Container{{Name: "main", Resources: r}}}}
			got, there := Resources(pod, &pod.Spec.Containers[0], c.machine).Unified[SwapFile]
			if !there {
				got = "-"
			}
			if got != c.want {
				t.Errorf("%s is %s, want %s", SwapFile, got, c.want)
			}
		})
	}
}

func TestGuaranteedPodsGetNoSwap(t *testing.T) {
	l := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceCPU: resource.MustParse("1")}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: l, Limits: l}}}}}
	if got := swapLimit(pod, &pod.Spec.Containers[0], Machine{MemoryCapacity: 4 << 30, PodSwap: 1 << 30}); got != 0 {
		t.Errorf("swap %d", got)
	}
}

func TestTheKernelKillsAContainerAsAWholeUnlessToldOtherwise(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	for single, want := range map[bool]string{false: "1", true: ""} {
		if got := Resources(pod, &pod.Spec.Containers[0], Machine{CgroupV2: true, SingleKill: single}).Unified["memory.oom.group"]; got != want {
			t.Errorf("single %v: memory.oom.group is %q", single, got)
		}
	}
}
