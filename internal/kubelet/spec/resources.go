package spec

import (
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
func Quota(milliCPU int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*QuotaPeriod/1000, minQuota)
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
	score := 1000 - 1000*c.Resources.Requests.Memory().Value()/memoryCapacity
	return min(max(score, 1000+oomGuaranteed), oomBestEffort-1)
}

// Machine describes the machine as far as container configurations need it.
type Machine struct {
	MemoryCapacity int64
	CgroupV2       bool
	// NoCFSQuota disables the enforcement of CPU limits.
	NoCFSQuota bool
}

// Resources computes a container's cgroup settings.
func Resources(pod *corev1.Pod, c *corev1.Container, m Machine) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{
		OomScoreAdj:        oomScore(pod, c, m.MemoryCapacity),
		MemoryLimitInBytes: c.Resources.Limits.Memory().Value(),
	}
	request := c.Resources.Requests.Cpu()
	if _, ok := c.Resources.Requests[corev1.ResourceCPU]; !ok {
		request = c.Resources.Limits.Cpu()
	}
	r.CpuShares = Shares(request.MilliValue())
	if !m.NoCFSQuota {
		r.CpuPeriod = QuotaPeriod
		r.CpuQuota = Quota(c.Resources.Limits.Cpu().MilliValue())
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) && r.MemoryLimitInBytes == 0 {
		r.MemoryLimitInBytes = pod.Spec.Resources.Limits.Memory().Value()
	}
	for name, q := range c.Resources.Limits {
		if size, ok := hugepageSize(name); ok {
			r.HugepageLimits = append(r.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: size, Limit: uint64(q.Value())})
		}
	}
	if m.CgroupV2 {
		// When a container runs out of memory, the kernel kills all its processes together.
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// hugepageSize converts hugepages-2Mi to the kernel's name 2MB.
func hugepageSize(name corev1.ResourceName) (string, bool) {
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
