package stats

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	corev1 "k8s.io/api/core/v1"
)

// group is one cgroup: of all pods, of a class, of a pod, of a container or of a sandbox.
type group struct {
	path           string // below the root of the hierarchy: "/kubepods/poduid"
	pod, namespace string
	container      string // "" for a sandbox and for a pod
	image          string // "" for a pod
	id             string // the container's or the sandbox's; "" for a pod
	started        time.Time
	network        bool // it is the sandbox of a pod with a network of its own
}

// counters are what the kernel counts for one cgroup.
type counters struct {
	*cgroups.Stats
	at    time.Time
	v2    bool
	ooms  uint64
	procs []string // pids
	limit limits
	stalls
}

// limits are a cgroup's limits; 0 means none.
type limits struct{ period, quota, shares, memory, reservation, swap uint64 }

const mountRoot = "/sys/fs/cgroup"

// controllers are the hierarchies of cgroup v1 whose counters are shown.
var controllers = []string{"cpu", "cpuacct", "memory", "pids", "blkio"}

// folder is the folder of a cgroup that lists its processes and its children.
func folder(cgroup string) string {
	if cgroups.IsCgroup2UnifiedMode() {
		return filepath.Join(mountRoot, cgroup)
	}
	return filepath.Join(mountRoot, "memory", cgroup)
}

// groups lists the cgroups of the node's pods, their classes and their containers.
func (c *Collector) groups() []group {
	if c.Groups == nil {
		return nil
	}
	top := c.Groups(nil)
	out := []group{{path: top}, {path: path.Join(top, "burstable")}, {path: path.Join(top, "besteffort")}}
	for _, pod := range c.Pods() {
		out = append(out, podGroups(pod, c.Groups(pod))...)
	}
	return out
}

func podGroups(pod *corev1.Pod, parent string) []group {
	children, err := os.ReadDir(folder(parent))
	if err != nil {
		return nil // the pod has not started yet, or it is gone
	}
	whole := group{path: parent, pod: pod.Name, namespace: pod.Namespace}
	if pod.Status.StartTime != nil {
		whole.started = pod.Status.StartTime.Time
	}
	known := containers(pod)
	out := []group{whole}
	for _, child := range children {
		if !child.IsDir() {
			continue
		}
		g := group{path: path.Join(parent, child.Name()), pod: pod.Name, namespace: pod.Namespace, id: child.Name(), started: whole.started}
		if status, ok := known[child.Name()]; ok {
			g.container, g.image = status.Name, status.Image
			if r := status.State.Running; r != nil {
				g.started = r.StartedAt.Time
			}
		} else if !ended(pod, child.Name()) {
			g.image, g.network = "pause", !pod.Spec.HostNetwork
		}
		out = append(out, g)
	}
	return out
}

// containers maps the ids of the pod's containers to their statuses.
func containers(pod *corev1.Pod) map[string]*corev1.ContainerStatus {
	out := map[string]*corev1.ContainerStatus{}
	s := &pod.Status
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if _, id, ok := strings.Cut(list[i].ContainerID, "://"); ok {
				out[id] = &list[i]
			}
		}
	}
	return out
}

// ended reports whether the id is that of an earlier attempt of a container.
func ended(pod *corev1.Pod, id string) bool {
	s := &pod.Status
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if t := list[i].LastTerminationState.Terminated; t != nil && strings.HasSuffix(t.ContainerID, id) {
				return true
			}
		}
	}
	return false
}

// read reads a cgroup's counters; nil if it is gone.
func read(cgroup string, now time.Time) *counters {
	out := &counters{at: now, v2: cgroups.IsCgroup2UnifiedMode()}
	procs, err := os.ReadFile(filepath.Join(folder(cgroup), "cgroup.procs"))
	if err != nil {
		return nil
	}
	out.procs = strings.Fields(string(procs))
	out.stalls = readStalls(pressureFolder(cgroup), ".pressure")
	config := &cgroups.Cgroup{Resources: &cgroups.Resources{}, Rootless: true}
	if out.v2 {
		m, err := fs2.NewManager(config, folder(cgroup))
		if err != nil {
			return nil
		}
		if out.Stats, _ = m.GetStats(); out.Stats == nil {
			return nil
		}
		out.ooms, _ = fs2.OOMKillCount(folder(cgroup))
		out.limit = limitsV2(folder(cgroup))
		return out
	}
	paths := map[string]string{}
	for _, name := range slices.DeleteFunc(slices.Clone(controllers), func(name string) bool { return name == "memory" }) {
		dir := filepath.Join(mountRoot, name, cgroup)
		if _, err := os.Stat(dir); err == nil {
			paths[name] = dir
		}
	}
	m, err := fs.NewManager(config, paths)
	if err != nil {
		return nil
	}
	if out.Stats, err = m.GetStats(); err != nil {
		return nil
	}
	memory := folder(cgroup)
	out.MemoryStats = memoryV1(memory)
	out.ooms, _ = fs.OOMKillCount(memory)
	out.limit = limitsV1(paths["cpu"], memory)
	return out
}

// memoryV1 reads the counters of memory that are shown. The library's reader opens four times as
// many files, which would be a quarter of the cost of a scrape.
func memoryV1(dir string) cgroups.MemoryStats {
	s := cgroups.MemoryStats{Stats: map[string]uint64{}}
	raw, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			s.Stats[name] = n
		}
	}
	s.Usage.Usage, _ = counted(dir, "memory.usage_in_bytes")
	s.Usage.MaxUsage, _ = counted(dir, "memory.max_usage_in_bytes")
	s.Usage.Failcnt, _ = counted(dir, "memory.failcnt")
	s.KernelUsage.Usage, _ = counted(dir, "memory.kmem.usage_in_bytes")
	return s
}

// unlimited is a number from which on a limit of memory means none.
const unlimited = 1 << 60

// number reads a file with one number; "max", negative and very large numbers are 0.
func number(dir, name string) uint64 {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil || n >= unlimited {
		return 0
	}
	return n
}

func limitsV1(cpu, memory string) limits {
	l := limits{
		period: number(cpu, "cpu.cfs_period_us"), quota: number(cpu, "cpu.cfs_quota_us"), shares: number(cpu, "cpu.shares"),
		memory: number(memory, "memory.limit_in_bytes"), reservation: number(memory, "memory.soft_limit_in_bytes"),
	}
	l.swap = number(memory, "memory.memsw.limit_in_bytes")
	return l
}

func limitsV2(dir string) limits {
	l := limits{memory: number(dir, "memory.max"), reservation: number(dir, "memory.low")}
	if swap := number(dir, "memory.swap.max"); swap > 0 {
		l.swap = l.memory + swap
	}
	if weight := number(dir, "cpu.weight"); weight > 0 {
		l.shares = 2 + (weight-1)*262142/9999
	}
	raw, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if f := strings.Fields(string(raw)); err == nil && len(f) == 2 { // "max 100000"
		l.quota, _ = strconv.ParseUint(f[0], 10, 64)
		l.period, _ = strconv.ParseUint(f[1], 10, 64)
	}
	return l
}

// memoryUse are the parts of a cgroup's memory, in bytes.
type memoryUse struct{ usage, peak, workingSet, rss, cache, mapped, swap, kernel, failures, faults, majorFaults, activeFile, inactiveFile uint64 }

func (c *counters) memory() memoryUse {
	m := &c.MemoryStats
	of := func(v1, v2 string) uint64 {
		if c.v2 {
			return m.Stats[v2]
		}
		if n, ok := m.Stats["total_"+v1]; ok {
			return n
		}
		return m.Stats[v1]
	}
	u := memoryUse{
		usage: m.Usage.Usage, peak: m.Usage.MaxUsage, rss: of("rss", "anon"), cache: of("cache", "file"), mapped: of("mapped_file", "file_mapped"),
		kernel: m.KernelUsage.Usage, failures: m.Usage.Failcnt, faults: of("pgfault", "pgfault"), majorFaults: of("pgmajfault", "pgmajfault"),
	}
	if c.v2 {
		u.kernel, u.swap = m.Stats["kernel"], m.SwapOnlyUsage.Usage
	} else {
		u.swap = of("swap", "")
	}
	u.activeFile, u.inactiveFile = of("active_file", "active_file"), of("inactive_file", "inactive_file")
	u.workingSet = u.usage - min(u.inactiveFile, u.usage)
	return u
}
