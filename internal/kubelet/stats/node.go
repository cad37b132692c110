package stats

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/knarr-project/knarr/internal/kubelet/node"
)

// node measures the node as a whole.
func (c *Collector) node() (*statsapi.NodeStats, error) {
	now := metav1.NewTime(c.Now())
	out := &statsapi.NodeStats{NodeName: c.NodeName, StartTime: metav1.NewTime(bootTime())}
	total, err := cpuTime()
	if err != nil {
		return nil, err
	}
	out.CPU = &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &total, UsageNanoCores: c.rate("node", now.Time, total)}
	if out.CPU.UsageNanoCores == nil {
		out.CPU.UsageNanoCores = ptr(uint64(0))
	}
	info, err := node.MemInfo()
	if err != nil {
		return nil, err
	}
	available := uint64(info["MemAvailable"])
	out.Memory = &statsapi.MemoryStats{
		Time: now, AvailableBytes: &available, UsageBytes: ptr(uint64(info["MemTotal"] - info["MemFree"])),
		WorkingSetBytes: ptr(uint64(max(info["MemTotal"]-info["MemAvailable"], 0))), RSSBytes: ptr(uint64(info["AnonPages"])),
		PageFaults: vmstat("pgfault"), MajorPageFaults: vmstat("pgmajfault"),
	}
	if info["SwapTotal"] > 0 {
		out.Swap = &statsapi.SwapStats{Time: now, SwapAvailableBytes: ptr(uint64(info["SwapFree"])), SwapUsageBytes: ptr(uint64(info["SwapTotal"] - info["SwapFree"]))}
	}
	readStalls("/proc/pressure", "").fill(now, usage{out.CPU, out.Memory, &out.IO})
	out.Network = nodeNetwork(now)
	root := filesystem(c.RootDir)
	root.Time = now
	out.Fs = &root
	c.mu.Lock()
	out.Runtime = c.imageFS
	c.mu.Unlock()
	out.Rlimit = processes(now)
	for name, pid := range c.PIDs {
		if s := c.process(name, pid(), now); s != nil {
			out.SystemContainers = append(out.SystemContainers, *s)
		}
	}
	if s := c.allPods(now); s != nil {
		out.SystemContainers = append(out.SystemContainers, *s)
	}
	return out, nil
}

// imageFs measures the filesystem of images and writable layers.
func (c *Collector) imageFs(ctx context.Context, now metav1.Time) *statsapi.RuntimeStats {
	resp, err := c.Images.ImageFsInfo(ctx)
	if err != nil {
		return nil
	}
	out := &statsapi.RuntimeStats{}
	for _, u := range resp.ImageFilesystems {
		f := filesystem(u.GetFsId().GetMountpoint())
		f.Time, f.UsedBytes = now, value(u.UsedBytes)
		if n := value(u.InodesUsed); n != nil {
			f.InodesUsed = n
		}
		out.ImageFs = &f
	}
	out.ContainerFs = out.ImageFs
	for _, u := range resp.ContainerFilesystems {
		f := filesystem(u.GetFsId().GetMountpoint())
		f.Time, f.UsedBytes = now, value(u.UsedBytes)
		out.ContainerFs = &f
	}
	return out
}

// filesystem measures the filesystem of a path.
func filesystem(path string) statsapi.FsStats {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return statsapi.FsStats{}
	}
	size := uint64(s.Bsize)
	return statsapi.FsStats{
		AvailableBytes: ptr(s.Bavail * size), CapacityBytes: ptr(s.Blocks * size), UsedBytes: ptr((s.Blocks - s.Bfree) * size),
		Inodes: ptr(s.Files), InodesFree: ptr(s.Ffree), InodesUsed: ptr(s.Files - s.Ffree),
	}
}

const ticksPerSecond = 100 // USER_HZ, which is part of the kernel's ABI

// cpuTime returns the CPU time that all processes have used since boot, in nanoseconds.
func cpuTime() (uint64, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	sum := uint64(0)
	for i, f := range strings.Fields(string(line)) {
		// Skip the label, idle and iowait; guest time is already part of user time.
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum * uint64(time.Second/ticksPerSecond), nil
}

func bootTime() time.Time {
	raw, _ := os.ReadFile("/proc/stat")
	for _, line := range strings.Split(string(raw), "\n") {
		if v, ok := strings.CutPrefix(line, "btime "); ok {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				return time.Unix(n, 0)
			}
		}
	}
	return time.Time{}
}

func vmstat(key string) *uint64 {
	raw, _ := os.ReadFile("/proc/vmstat")
	for _, line := range strings.Split(string(raw), "\n") {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			if n, err := strconv.ParseUint(v, 10, 64); err == nil {
				return &n
			}
		}
	}
	return nil
}

func nodeNetwork(now metav1.Time) *statsapi.NetworkStats {
	raw, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil
	}
	out := &statsapi.NetworkStats{Time: now}
	for _, l := range interfaces(string(raw)) {
		if l.name == "lo" || strings.HasPrefix(l.name, "veth") {
			continue
		}
		i := statsapi.InterfaceStats{Name: l.name, RxBytes: &l.counts[0], RxErrors: &l.counts[2], TxBytes: &l.counts[8], TxErrors: &l.counts[10]}
		if out.Name == "" {
			out.InterfaceStats = i
		}
		out.Interfaces = append(out.Interfaces, i)
	}
	return out
}

// link is a line of /proc/net/dev: bytes, packets, errors and drops received are at 0 to 3, those
// transmitted at 8 to 11.
type link struct {
	name   string
	counts [16]uint64
}

// interfaces parses /proc/net/dev.
func interfaces(content string) []*link {
	var out []*link
	for line := range strings.Lines(content) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) < 16 {
			continue
		}
		l := &link{name: strings.TrimSpace(name)}
		for i := range l.counts {
			l.counts[i], _ = strconv.ParseUint(f[i], 10, 64)
		}
		out = append(out, l)
	}
	return out
}

// processes returns the current and the maximum number of processes.
func processes(now metav1.Time) *statsapi.RlimitStats {
	out := &statsapi.RlimitStats{Time: now}
	if raw, err := os.ReadFile("/proc/sys/kernel/pid_max"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil {
			out.MaxPID = &n
		}
	}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil { // 0.1 0.2 0.3 2/345 6789
		f := strings.Fields(string(raw))
		if len(f) >= 4 {
			if _, all, ok := strings.Cut(f[3], "/"); ok {
				if n, err := strconv.ParseInt(all, 10, 64); err == nil {
					out.NumOfRunningProcesses = &n
				}
			}
		}
	}
	return out
}

// allPods measures the cgroup of all pods together; nil if there is none.
func (c *Collector) allPods(now metav1.Time) *statsapi.ContainerStats {
	if c.Groups == nil {
		return nil
	}
	cgroup := c.Groups(nil)
	s := read(cgroup, now.Time)
	if s == nil {
		return nil
	}
	m, total := s.memory(), s.CpuStats.CpuUsage.TotalUsage
	out := &statsapi.ContainerStats{
		Name: statsapi.SystemContainerPods, StartTime: metav1.NewTime(c.started),
		CPU: &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &total, UsageNanoCores: c.rate("pods", now.Time, total)},
		Memory: &statsapi.MemoryStats{
			Time: now, UsageBytes: &m.usage, WorkingSetBytes: &m.workingSet, RSSBytes: &m.rss, PageFaults: &m.faults, MajorPageFaults: &m.majorFaults,
		},
		Swap: swapOf(cgroup, now),
	}
	if s.limit.memory > 0 {
		out.Memory.AvailableBytes = ptr(s.limit.memory - min(m.workingSet, s.limit.memory))
	}
	if out.CPU.UsageNanoCores == nil {
		out.CPU.UsageNanoCores = ptr(uint64(0))
	}
	s.fill(now, usage{out.CPU, out.Memory, &out.IO})
	return out
}

// process measures one of our own processes.
func (c *Collector) process(name string, pid int, now metav1.Time) *statsapi.ContainerStats {
	dir := "/proc/" + strconv.Itoa(pid)
	raw, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return nil
	}
	_, rest, ok := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 22 {
		return nil
	}
	n := func(i int) uint64 { v, _ := strconv.ParseUint(f[i], 10, 64); return v }
	total := (n(11) + n(12)) * uint64(time.Second/ticksPerSecond)
	rss := n(21) * uint64(os.Getpagesize())
	rate := c.rate("process/"+name, now.Time, total)
	if rate == nil {
		rate = ptr(uint64(0))
	}
	return &statsapi.ContainerStats{
		Name: name, StartTime: metav1.NewTime(c.started), CPU: &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &total, UsageNanoCores: rate},
		Memory: &statsapi.MemoryStats{Time: now, UsageBytes: &rss, WorkingSetBytes: &rss, RSSBytes: &rss},
	}
}
