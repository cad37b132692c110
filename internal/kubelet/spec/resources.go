package spec

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kernel units: cpu.shares and the CFS period.
const (
	minShares    = 2
	maxShares    = 262144
	sharesPerCPU = 1024
	QuotaPeriod  = 100000 // µs
	minQuota     = 1000
)

// Shares converts a CPU request in thousandths of a core to cpu.shares.
func Shares(milliCPU int64) int64 {
	if milliCPU == 0 {
		return minShares
	}
	return min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares)
}

// Quota converts a CPU limit in thousandths of a core to the CFS quota. 0 means no quota.
func Quota(milliCPU int64) int64 { return QuotaOf(milliCPU, QuotaPeriod) }

// QuotaOf is Quota for a period in microseconds.
func QuotaOf(milliCPU, period int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*period/1000, minQuota)
}

// QOS returns the pod's class: the status's if set, otherwise computed from requests and limits.
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	guaranteed, any := true, false
	look := func(r corev1.ResourceRequirements) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			req, lim := r.Requests[name], r.Limits[name]
			if !req.IsZero() || !lim.IsZero() {
				any = true
			}
			if lim.IsZero() || !req.IsZero() && req.Cmp(lim) != 0 {
				guaranteed = false
			}
		}
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		look(*pod.Spec.Resources)
	} else {
		for _, c := range pod.Spec.InitContainers {
			look(c.Resources)
		}
		for _, c := range pod.Spec.Containers {
			look(c.Resources)
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// OOM score adjustments. The kernel kills the process with the highest score first.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

func oomScore(pod *corev1.Pod, c *corev1.Container, memoryCapacity int64) int64 {
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= 2000001000 { // system-node-critical
		return oomGuaranteed
	}
	switch QOS(pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	if memoryCapacity <= 0 {
		return oomBestEffort - 1
	}
	score := 1000 - 1000*(memoryRequest(c)+podShare(pod))/memoryCapacity
	if IsSidecar(c) && isInit(pod, c.Name) {
		// A sidecar must not be killed before the containers that use it.
		least := int64(0)
		for i := range pod.Spec.Containers {
			if r := memoryRequest(&pod.Spec.Containers[i]); i == 0 || r < least {
				least = r
			}
		}
		score = min(score, 1000-1000*(least+podShare(pod))/memoryCapacity)
	}
	return min(max(score, 1000+oomGuaranteed), oomBestEffort-1)
}

func memoryRequest(c *corev1.Container) int64 { return c.Resources.Requests.Memory().Value() }

func isInit(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return true
		}
	}
	return false
}

// podShare is each container's part of the pod-level memory request that the containers' own
// requests leave over.
func podShare(pod *corev1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) {
		return 0
	}
	whole, ok := pod.Spec.Resources.Requests[corev1.ResourceMemory]
	if !ok {
		return 0
	}
	count := int64(len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		if IsSidecar(&pod.Spec.InitContainers[i]) {
			count++
		}
	}
	sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	left := whole.Value() - sum.Memory().Value()
	return max(left, 0) / max(count, 1)
}

// Machine describes the machine as far as container configurations need it.
type Machine struct {
	MemoryCapacity int64
	CgroupV2       bool
	// NoCFSQuota disables the enforcement of CPU limits.
	NoCFSQuota bool
	// QuotaPeriod is the period of CPU limits in microseconds; 0 selects the default.
	QuotaPeriod int64
	// SingleKill makes the kernel kill single processes of a container that is out of memory. It
	// needs cgroup v2; with v1 it is always so.
	SingleKill bool
	// LimitsSwap means that the kernel can limit the swap of a container, which needs cgroup v2.
	LimitsSwap bool
	// PodSwap is the swap that pods can have together, in bytes. 0 means none.
	PodSwap int64
}

// EffectiveResources are a container's resources with the pod's limits in place of missing ones
// (KEP-2837).
func EffectiveResources(pod *corev1.Pod, c *corev1.Container) corev1.ResourceRequirements {
	r := *c.Resources.DeepCopy()
	if pod.Spec.Resources == nil {
		return r
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit := pod.Spec.Resources.Limits[name]
		if own := r.Limits[name]; own.IsZero() && !limit.IsZero() {
			if r.Limits == nil {
				r.Limits = corev1.ResourceList{}
			}
			r.Limits[name] = limit
		}
	}
	return r
}

// period is the period of CPU limits in microseconds.
func (m Machine) period() int64 { return cmp.Or(m.QuotaPeriod, QuotaPeriod) }

// Resources computes a container's cgroup settings.
func Resources(pod *corev1.Pod, c *corev1.Container, m Machine) *runtimeapi.LinuxContainerResources {
	limits := EffectiveResources(pod, c).Limits
	r := &runtimeapi.LinuxContainerResources{
		OomScoreAdj:        oomScore(pod, c, m.MemoryCapacity),
		MemoryLimitInBytes: limits.Memory().Value(),
	}
	request := c.Resources.Requests.Cpu()
	if _, ok := c.Resources.Requests[corev1.ResourceCPU]; !ok {
		request = c.Resources.Limits.Cpu()
	}
	r.CpuShares = Shares(request.MilliValue())
	if !m.NoCFSQuota {
		r.CpuPeriod = m.period()
		r.CpuQuota = QuotaOf(limits.Cpu().MilliValue(), m.period())
	}
	for name, q := range c.Resources.Limits {
		if size, ok := HugePageSize(name); ok {
			r.HugepageLimits = append(r.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: size, Limit: uint64(q.Value())})
		}
	}
	if m.CgroupV2 {
		r.Unified = map[string]string{}
		if !m.SingleKill {
			// When a container runs out of memory, the kernel kills all its processes together.
			r.Unified["memory.oom.group"] = "1"
		}
		if m.LimitsSwap {
			r.Unified[SwapFile] = itoa(swapLimit(pod, c, m))
		}
	}
	return r
}

// SwapFile is the file of a cgroup v2 that limits swap.
const SwapFile = "memory.swap.max"

// swapLimit is the swap of a container in bytes: its memory request's part of the swap of all pods
// (KEP-2400). Only containers of burstable pods have swap, if they have a request that is not the
// limit. Critical pods have none.
func swapLimit(pod *corev1.Pod, c *corev1.Container, m Machine) int64 {
	request, limit := memoryRequest(c), c.Resources.Limits.Memory().Value()
	if m.PodSwap <= 0 || m.MemoryCapacity <= 0 || request <= 0 || request == limit || QOS(pod) != corev1.PodQOSBurstable {
		return 0
	}
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical {
		return 0
	}
	part := float64(request) / float64(m.MemoryCapacity)
	return int64(min(part, 1) * float64(m.PodSwap))
}

// systemCritical is the lowest priority of critical pods: that of system-cluster-critical.
const systemCritical = 2_000_000_000

// HugePageSize converts hugepages-2Mi to the kernel's name 2MB.
func HugePageSize(name corev1.ResourceName) (string, bool) {
	const prefix = corev1.ResourceHugePagesPrefix
	if len(name) <= len(prefix) || string(name[:len(prefix)]) != prefix {
		return "", false
	}
	q, err := resource.ParseQuantity(string(name[len(prefix):]))
	if err != nil {
		return "", false
	}
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	size, unit := q.Value(), 0
	for size >= 1024 && unit < len(units)-1 {
		size /= 1024
		unit++
	}
	return itoa(size) + units[unit], true
}
