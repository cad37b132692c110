package stats

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/knarr-project/knarr/internal/kubelet/node"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/volume"
)

// summaryAge is the age up to which a summary is reused.
const summaryAge = time.Second

// Config configures a Collector.
type Config struct {
	NodeName         string
	Runtime          internalapi.RuntimeService
	Images           internalapi.ImageManagerService
	RootDir, LogsDir string
	// Pods lists the pods that have workers.
	Pods func() []*corev1.Pod
	// Volumes lists how to measure a pod's volumes; may be nil.
	Volumes func(pod *corev1.Pod, podDir string) []volume.Measurement
	// Groups returns the path of a pod's cgroup, or that of all pods for nil. If nil, the pods'
	// cgroups are not known.
	Groups func(pod *corev1.Pod) string
	// Machine is what the machine has.
	Machine node.Machine
	// PIDs maps a name ("kubelet", "runtime") to a process to report.
	PIDs map[string]func() int
	Now  func() time.Time
}

// Collector measures and caches. It is safe for concurrent use.
type Collector struct {
	Config
	started time.Time
	// turn is held during a summary, so that concurrent callers share one.
	turn chan struct{}
	disk *background

	mu      sync.Mutex // guards the following; never held during I/O
	last    *statsapi.Summary
	lastAt  time.Time
	imageFS *statsapi.RuntimeStats
	rates   map[string]rate
}

type rate struct {
	at    time.Time
	total uint64
	nano  uint64
}

// New makes a Collector.
func New(c Config) *Collector {
	return &Collector{Config: c, started: c.Now(), turn: make(chan struct{}, 1), disk: newBackground(c.Now), rates: map[string]rate{}}
}

// Run stops the measurements of disks when ctx ends.
func (c *Collector) Run(ctx context.Context) {
	<-ctx.Done()
	c.disk.cancel()
}

// Summary measures the node and all pods. It reuses measurements up to summaryAge old. Usage of
// disks comes from the background; before its first measurement, a volume is missing.
func (c *Collector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a measurement in progress: %w", ctx.Err())
	}
	c.mu.Lock()
	last, at := c.last, c.lastAt
	c.mu.Unlock()
	if last != nil && c.Now().Sub(at) < summaryAge {
		return last, nil
	}
	fs := c.imageFs(ctx, metav1.NewTime(c.Now()))
	c.mu.Lock()
	c.imageFS = fs
	c.mu.Unlock()
	pods, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	node, err := c.node()
	if err != nil {
		return nil, err
	}
	out := &statsapi.Summary{Node: *node, Pods: pods}
	c.mu.Lock()
	c.last, c.lastAt = out, c.Now()
	c.mu.Unlock()
	return out, nil
}

// Node measures the node without its pods. It does not ask the runtime, so that it answers also
// while the runtime hangs: the file system of images is found in the background.
func (c *Collector) Node(context.Context) (*statsapi.Summary, error) {
	c.disk.latest("images", func(ctx context.Context) (volume.Usage, error) {
		fs := c.imageFs(ctx, metav1.NewTime(c.Now()))
		c.mu.Lock()
		c.imageFS = fs
		c.mu.Unlock()
		return volume.Usage{}, nil
	})
	n, err := c.node()
	if err != nil {
		return nil, err
	}
	return &statsapi.Summary{Node: *n}, nil
}

func (c *Collector) pods(ctx context.Context) ([]statsapi.PodStats, error) {
	sandboxes, err := c.Runtime.ListPodSandboxStats(ctx, &runtimeapi.PodSandboxStatsFilter{})
	if err != nil {
		return nil, fmt.Errorf("list the runtime's pod statistics: %w", err)
	}
	known := map[string]*corev1.Pod{}
	for _, p := range c.Pods() {
		known[string(p.UID)] = p
	}
	var out []statsapi.PodStats
	for _, s := range sandboxes {
		meta := s.GetAttributes().GetMetadata()
		pod := known[meta.GetUid()]
		if pod == nil {
			continue
		}
		out = append(out, c.pod(pod, s))
	}
	c.forget()
	return out, nil
}

// forget drops the measurements of removed pods.
func (c *Collector) forget() {
	c.disk.forget()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.rates {
		if c.Now().Sub(r.at) > 10*time.Minute {
			delete(c.rates, key)
		}
	}
}

func (c *Collector) pod(pod *corev1.Pod, s *runtimeapi.PodSandboxStats) statsapi.PodStats {
	linux := s.GetLinux()
	out := statsapi.PodStats{
		PodRef: statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
		CPU:    c.cpu("pod/"+string(pod.UID), linux.GetCpu()), Memory: memory(linux.GetMemory()), Network: network(linux.GetNetwork()),
		ProcessStats: &statsapi.ProcessStats{ProcessCount: value(linux.GetProcess().GetProcessCount())}, Containers: []statsapi.ContainerStats{},
		IO: ioStats(linux.GetIo()),
	}
	if pod.Status.StartTime != nil {
		out.StartTime = *pod.Status.StartTime
	}
	now := metav1.NewTime(c.Now())
	c.fromGroup("", pod, now, usage{out.CPU, out.Memory, &out.IO}, &out.Swap)
	known := containers(pod)
	var used, inodes uint64
	logDir, fs := spec.LogDir(c.LogsDir, pod), filesystem(c.RootDir)
	for _, r := range linux.GetContainers() {
		name := r.GetAttributes().GetMetadata().GetName()
		st := statsapi.ContainerStats{
			Name: name, StartTime: out.StartTime, CPU: c.cpu(r.GetAttributes().GetId(), r.GetCpu()), Memory: memory(r.GetMemory()),
			Rootfs: c.writableLayer(r.GetWritableLayer(), now), IO: ioStats(r.GetIo()), Swap: swap(r.GetSwap()),
		}
		id := r.GetAttributes().GetId()
		if status := known[id]; status != nil && status.State.Running != nil {
			st.StartTime = status.State.Running.StartedAt
		}
		c.fromGroup(id, pod, now, usage{st.CPU, st.Memory, &st.IO}, &st.Swap)
		logs, at, ok := c.logs(filepath.Join(logDir, name))
		if ok {
			st.Logs = &statsapi.FsStats{
				Time: metav1.NewTime(at), UsedBytes: &logs.UsedBytes, InodesUsed: &logs.InodesUsed,
				AvailableBytes: fs.AvailableBytes, CapacityBytes: fs.CapacityBytes, Inodes: fs.Inodes, InodesFree: fs.InodesFree,
			}
		}
		if st.Rootfs.UsedBytes != nil {
			used += *st.Rootfs.UsedBytes
		}
		if st.Rootfs.InodesUsed != nil {
			inodes += *st.Rootfs.InodesUsed
		}
		used, inodes = used+logs.UsedBytes, inodes+logs.InodesUsed
		out.Containers = append(out.Containers, st)
	}
	for _, m := range c.measurements(pod) {
		v, at, ok := c.disk.latest(m.Dir, m.Run)
		if !ok {
			continue
		}
		vs := statsapi.VolumeStats{Name: m.Volume, FsStats: statsapi.FsStats{
			Time: metav1.NewTime(at), AvailableBytes: ptr(v.Available), CapacityBytes: ptr(v.CapacityBytes), UsedBytes: ptr(v.UsedBytes),
			Inodes: ptr(v.Inodes), InodesFree: ptr(v.InodesFree), InodesUsed: ptr(v.InodesUsed),
		}}
		if v.Abnormal != nil {
			vs.VolumeHealthStats = &statsapi.VolumeHealthStats{Abnormal: *v.Abnormal}
		}
		if m.Claim != "" {
			vs.PVCRef = &statsapi.PVCReference{Name: m.Claim, Namespace: pod.Namespace}
		} else if !inMemory(pod, m.Volume) {
			used, inodes = used+v.UsedBytes, inodes+v.InodesUsed
		}
		out.VolumeStats = append(out.VolumeStats, vs)
	}
	out.EphemeralStorage = &statsapi.FsStats{
		Time: now, UsedBytes: &used, InodesUsed: &inodes, AvailableBytes: fs.AvailableBytes, CapacityBytes: fs.CapacityBytes, Inodes: fs.Inodes, InodesFree: fs.InodesFree,
	}
	return out
}

// fromGroup adds what the runtime does not report: pressures and swap of the cgroup of a pod, or of
// the pod's container with an id.
func (c *Collector) fromGroup(id string, pod *corev1.Pod, now metav1.Time, u usage, swap **statsapi.SwapStats) {
	if c.Groups == nil {
		return
	}
	cgroup := path.Join(c.Groups(pod), id)
	readStalls(pressureFolder(cgroup), ".pressure").fill(now, u)
	if *swap == nil {
		*swap = swapOf(cgroup, now)
	}
}

// writableLayer is the root file system of a container.
func (c *Collector) writableLayer(u *runtimeapi.FilesystemUsage, now metav1.Time) *statsapi.FsStats {
	out := &statsapi.FsStats{Time: now, UsedBytes: value(u.GetUsedBytes()), InodesUsed: value(u.GetInodesUsed())}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.imageFS != nil && c.imageFS.ContainerFs != nil {
		fs := c.imageFS.ContainerFs
		out.AvailableBytes, out.CapacityBytes, out.Inodes, out.InodesFree = fs.AvailableBytes, fs.CapacityBytes, fs.Inodes, fs.InodesFree
	}
	return out
}

func inMemory(pod *corev1.Pod, volume string) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Name == volume {
			return v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumDefault || v.EmptyDir == nil
		}
	}
	return false
}

func (c *Collector) measurements(pod *corev1.Pod) []volume.Measurement {
	if c.Volumes == nil {
		return nil
	}
	return c.Volumes(pod, spec.PodDir(c.RootDir, pod.UID))
}

// ClaimUsage is the usage of the volume of a claim.
type ClaimUsage struct {
	Namespace string
	volume.Usage
}

// Claims returns the usage of the claims' volumes that have been measured, of all pods.
func (c *Collector) Claims() []ClaimUsage {
	var out []ClaimUsage
	for _, pod := range c.Pods() {
		for _, m := range c.measurements(pod) {
			if m.Claim == "" {
				continue
			}
			if u, _, ok := c.disk.latest(m.Dir, m.Run); ok {
				u.Claim = m.Claim
				out = append(out, ClaimUsage{pod.Namespace, u})
			}
		}
	}
	return out
}

// LogUsage is the size of a container's logs.
type LogUsage struct {
	Pod       *corev1.Pod
	Container string
	UsedBytes uint64
}

// Logs returns the sizes of the running pods' logs, as far as they have been measured.
func (c *Collector) Logs() []LogUsage {
	var out []LogUsage
	for _, pod := range c.Pods() {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		dir := spec.LogDir(c.LogsDir, pod)
		for i := range pod.Spec.Containers {
			name := pod.Spec.Containers[i].Name
			if u, _, ok := c.logs(filepath.Join(dir, name)); ok {
				out = append(out, LogUsage{pod, name, u.UsedBytes})
			}
		}
	}
	return out
}

// logs measures a container's folder of logs.
func (c *Collector) logs(dir string) (volume.Usage, time.Time, bool) {
	return c.disk.latest(dir, func(ctx context.Context) (u volume.Usage, err error) {
		u.UsedBytes, u.InodesUsed, err = volume.DiskUsage(ctx, dir)
		return u, err
	})
}

func (c *Collector) cpu(key string, u *runtimeapi.CpuUsage) *statsapi.CPUStats {
	if u == nil {
		return nil
	}
	out := &statsapi.CPUStats{Time: metav1.Unix(0, u.Timestamp), UsageCoreNanoSeconds: value(u.UsageCoreNanoSeconds), UsageNanoCores: value(u.UsageNanoCores), PSI: psi(u.Psi)}
	if out.UsageNanoCores == nil && out.UsageCoreNanoSeconds != nil {
		out.UsageNanoCores = c.rate(key, out.Time.Time, *out.UsageCoreNanoSeconds)
	}
	return out
}

// rate is the CPU usage in billionths of a core since the last measurement, or nil for the first
// one.
func (c *Collector) rate(key string, at time.Time, total uint64) *uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.rates[key]
	passed := at.Sub(old.at)
	switch {
	case !ok || total < old.total:
		c.rates[key] = rate{at: at, total: total}
		return nil
	case passed < 500*time.Millisecond:
		return &old.nano
	}
	nano := uint64(float64(total-old.total) / passed.Seconds())
	c.rates[key] = rate{at, total, nano}
	return &nano
}

func memory(u *runtimeapi.MemoryUsage) *statsapi.MemoryStats {
	if u == nil {
		return nil
	}
	return &statsapi.MemoryStats{
		Time: metav1.Unix(0, u.Timestamp), AvailableBytes: value(u.AvailableBytes), UsageBytes: value(u.UsageBytes), WorkingSetBytes: value(u.WorkingSetBytes),
		RSSBytes: value(u.RssBytes), PageFaults: value(u.PageFaults), MajorPageFaults: value(u.MajorPageFaults), PSI: psi(u.Psi),
	}
}

func network(u *runtimeapi.NetworkUsage) *statsapi.NetworkStats {
	if u == nil {
		return nil
	}
	one := func(i *runtimeapi.NetworkInterfaceUsage) statsapi.InterfaceStats {
		return statsapi.InterfaceStats{Name: i.GetName(), RxBytes: value(i.GetRxBytes()), RxErrors: value(i.GetRxErrors()), TxBytes: value(i.GetTxBytes()), TxErrors: value(i.GetTxErrors())}
	}
	out := &statsapi.NetworkStats{Time: metav1.Unix(0, u.Timestamp), InterfaceStats: one(u.DefaultInterface)}
	for _, i := range append([]*runtimeapi.NetworkInterfaceUsage{u.DefaultInterface}, u.Interfaces...) {
		out.Interfaces = append(out.Interfaces, one(i))
	}
	return out
}

func value(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return ptr(v.Value)
}

func ptr[T any](v T) *T { return &v }
