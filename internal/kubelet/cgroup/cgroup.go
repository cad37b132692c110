// Package cgroup makes the cgroups above containers: kubepods, below it one cgroup per QoS class,
// and below that one per pod. It works with cgroup v1, hybrid and v2, without systemd.
package cgroup

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// V2 reports whether the machine has cgroup v2 only.
func V2() bool { return cgroups.IsCgroup2UnifiedMode() }

// Manager makes and removes pods' cgroups. It is safe for concurrent use.
type Manager struct {
	// Root is the parent cgroup of kubepods: "/" or "/knarr".
	Root string
	// NoCFSQuota disables the enforcement of CPU limits.
	NoCFSQuota bool
	// QuotaPeriod is the period of CPU limits in microseconds; 0 selects the default.
	QuotaPeriod int64
	// PodPIDs is the largest number of processes of a pod; 0 or less means no limit.
	PodPIDs int64
	// All limits all pods together (EnforcePods).
	All Limits
	// NoQuota reports whether a pod has exclusive CPUs, which a limit would only throttle. May be
	// nil.
	NoQuota func(pod types.UID) bool

	mu        sync.Mutex
	parents   bool
	burstable map[types.UID]int64 // CPU requests of burstable pods
	shares    int64               // the burstable cgroup's shares as last written
}

// path returns the path of a pod's cgroup.
func (m *Manager) path(class corev1.PodQOSClass, uid types.UID) string {
	name := "pod" + string(uid)
	switch class {
	case corev1.PodQOSBurstable:
		return path.Join("/", m.Root, "kubepods", "burstable", name)
	case corev1.PodQOSBestEffort:
		return path.Join("/", m.Root, "kubepods", "besteffort", name)
	}
	return path.Join("/", m.Root, "kubepods", name)
}

// Name is the path of a pod's cgroup, or of the cgroup of all pods for nil.
func (m *Manager) Name(pod *corev1.Pod) string {
	if pod == nil {
		return path.Join("/", m.Root, "kubepods")
	}
	return m.path(spec.QOS(pod), pod.UID)
}

// Ensure makes the pod's cgroup with the pod's resources and returns its path.
func (m *Manager) Ensure(pod *corev1.Pod) (string, error) {
	if err := m.ensureParents(); err != nil {
		return "", err
	}
	class := spec.QOS(pod)
	p := m.path(class, pod.UID)
	if err := m.apply(p, m.resources(pod)); err != nil {
		return "", fmt.Errorf("cgroup %s: %w", p, err)
	}
	if class == corev1.PodQOSBurstable {
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		m.count(pod.UID, requests.Cpu().MilliValue())
	}
	return p, nil
}

// resources computes the limits of the whole pod. The pod has a limit only if all its containers
// have one.
func (m *Manager) resources(pod *corev1.Pod) *cgroups.Resources {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	cpuLimited, memoryLimited := true, true
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{
		ContainerFn: func(r corev1.ResourceList, kind resourcehelper.ContainerType) {
			cpuLimited = cpuLimited && !r.Cpu().IsZero()
			memoryLimited = memoryLimited && !r.Memory().IsZero()
		},
	})
	if resourcehelper.IsPodLevelLimitsSet(pod) {
		cpuLimited = cpuLimited || !pod.Spec.Resources.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited || !pod.Spec.Resources.Limits.Memory().IsZero()
	}
	r := &cgroups.Resources{SkipDevices: true, CpuShares: uint64(spec.Shares(requests.Cpu().MilliValue()))}
	if m.NoQuota != nil && m.NoQuota(pod.UID) {
		cpuLimited = false
	}
	if cpuLimited && !m.NoCFSQuota {
		period := cmp.Or(m.QuotaPeriod, spec.QuotaPeriod)
		r.CpuQuota, r.CpuPeriod = spec.QuotaOf(limits.Cpu().MilliValue(), period), uint64(period)
	} else if !m.NoCFSQuota {
		r.CpuQuota = -1
	}
	r.Memory = -1
	if memoryLimited {
		r.Memory = limits.Memory().Value()
	}
	r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares)
	pids := int64(-1)
	if m.PodPIDs > 0 {
		pids = m.PodPIDs
	}
	r.PidsLimit = &pids
	r.HugetlbLimit = hugePageLimits(limits, pageSizes())
	return r
}

// Widen gives the pod's cgroup the larger limits of both versions of the pod. The cgroup exists.
func (m *Manager) Widen(pod, before *corev1.Pod) error {
	p := m.path(spec.QOS(pod), pod.UID)
	r, old := m.resources(pod), m.resources(before)
	if old.CpuQuota < 0 || r.CpuQuota >= 0 && old.CpuQuota > r.CpuQuota {
		r.CpuQuota, r.CpuPeriod = old.CpuQuota, old.CpuPeriod
	}
	if old.Memory < 0 || r.Memory >= 0 && old.Memory > r.Memory {
		r.Memory = old.Memory
	}
	if err := m.apply(p, r); err != nil {
		return fmt.Errorf("cgroup %s: %w", p, err)
	}
	return nil
}

// MemoryUsage is the number of bytes that the pod's cgroup uses.
func (m *Manager) MemoryUsage(pod *corev1.Pod) (int64, error) {
	p := m.path(spec.QOS(pod), pod.UID)
	for _, dir := range m.dirs(p) {
		for _, name := range []string{"memory.current", "memory.usage_in_bytes"} {
			if raw, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("cgroup %s: no file has the memory usage", p)
}

func (m *Manager) apply(p string, r *cgroups.Resources) error {
	cm, err := manager.New(&cgroups.Cgroup{Path: p, Resources: r})
	if err != nil {
		return err
	}
	if err := cm.Apply(-1); err != nil {
		return err
	}
	return cm.Set(r)
}

// ensureParents makes kubepods and the cgroups of the two classes below it, once.
func (m *Manager) ensureParents() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parents {
		return nil
	}
	kubepods := path.Join("/", m.Root, "kubepods")
	minimal := &cgroups.Resources{SkipDevices: true, CpuShares: uint64(spec.Shares(0))}
	minimal.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(minimal.CpuShares)
	for _, p := range []struct {
		path string
		r    *cgroups.Resources
	}{{kubepods, &cgroups.Resources{SkipDevices: true}}, {kubepods + "/burstable", minimal}, {kubepods + "/besteffort", minimal}} {
		if err := m.apply(p.path, p.r); err != nil {
			return fmt.Errorf("cgroup %s: %w", p.path, err)
		}
	}
	m.parents = true
	return nil
}

// Ready makes the parent cgroups of pods unless they exist. It returns an error if that is not
// possible.
func (m *Manager) Ready() error {
	if len(m.dirs(path.Join("/", m.Root, "kubepods"))) == 0 {
		m.mu.Lock()
		m.parents = false
		m.mu.Unlock()
	}
	return m.ensureParents()
}

// count sets the weight of the burstable class to the sum of its pods' requests.
func (m *Manager) count(uid types.UID, milliCPU int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.burstable == nil {
		m.burstable = map[types.UID]int64{}
	}
	if milliCPU < 0 {
		delete(m.burstable, uid)
	} else {
		m.burstable[uid] = milliCPU
	}
	sum := int64(0)
	for _, c := range m.burstable {
		sum += c
	}
	shares := spec.Shares(sum)
	if shares == m.shares {
		return
	}
	r := &cgroups.Resources{SkipDevices: true, CpuShares: uint64(shares), CpuWeight: cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares))}
	if err := m.apply(path.Join("/", m.Root, "kubepods", "burstable"), r); err == nil {
		m.shares = shares
	}
}

// Adopt counts a pod that runs already, after a restart.
func (m *Manager) Adopt(pod *corev1.Pod) {
	if spec.QOS(pod) == corev1.PodQOSBurstable {
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		m.count(pod.UID, requests.Cpu().MilliValue())
	}
}

// Remove removes the pod's cgroup in whatever class it is. Processes that are still ending get a
// moment to finish; then they are killed. After an error, the caller tries again later.
func (m *Manager) Remove(uid types.UID) error {
	m.count(uid, -1)
	var last error
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		p := m.path(class, uid)
		for _, dir := range m.dirs(p) {
			if err := removeTree(dir); err != nil {
				last = fmt.Errorf("cgroup %s: %w", dir, err)
			}
		}
	}
	return last
}

// Pods lists the pods that have a cgroup.
func (m *Manager) Pods() []types.UID {
	seen := map[types.UID]bool{}
	for _, parent := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		for _, dir := range m.dirs(path.Join("/", m.Root, parent)) {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if name := e.Name(); e.IsDir() && len(name) > 3 && name[:3] == "pod" {
					seen[types.UID(name[3:])] = true
				}
			}
		}
	}
	var out []types.UID
	for uid := range seen {
		out = append(out, uid)
	}
	return out
}

const mountRoot = "/sys/fs/cgroup"

// dirs returns the folders of a cgroup in all hierarchies that have it.
func (m *Manager) dirs(p string) []string {
	candidates := []string{filepath.Join(mountRoot, p)}
	if !V2() {
		candidates, _ = filepath.Glob(filepath.Join(mountRoot, "*"))
		for i := range candidates {
			candidates[i] = filepath.Join(candidates[i], p)
		}
	}
	var out []string
	for _, c := range candidates {
		if st, err := os.Stat(c); err == nil && st.IsDir() {
			out = append(out, c)
		}
	}
	return out
}

// Dirs returns the folders of a pod's cgroup, for reading its counters.
func (m *Manager) Dirs(class corev1.PodQOSClass, uid types.UID) []string {
	return m.dirs(m.path(class, uid))
}

// kill kills all processes of a cgroup. They are left over from containers that have ended.
func kill(dir string) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for _, field := range strings.Fields(string(data)) {
		// 0 is a process of another PID namespace.
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for attempt := 0; ; attempt++ {
		err := os.Remove(dir)
		if err == nil || os.IsNotExist(err) {
			return nil
		}
		if attempt == 5 {
			return err
		}
		if attempt >= 2 {
			kill(dir)
		}
		time.Sleep(time.Duration(5<<attempt) * time.Millisecond)
	}
}
