package stats

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/volume"
)

// Ages up to which measurements are reused.
const (
	summaryAge = time.Second
	diskAge    = 30 * time.Second
)

// Config configures a Collector.
type Config struct {
	NodeName         string
	Runtime          internalapi.RuntimeService
	Images           internalapi.ImageManagerService
	RootDir, LogsDir string
	// Pods lists the pods that have workers.
	Pods func() []*corev1.Pod
	// VolumeUsage measures a pod's volumes; may be nil.
	VolumeUsage func(pod *corev1.Pod, podDir string) ([]volume.Usage, error)
	// PIDs maps a name ("kubelet", "runtime") to a process to report.
	PIDs map[string]func() int
	Now  func() time.Time
}

// Collector measures and caches. It is safe for concurrent use.
type Collector struct {
	Config
	started time.Time

	mu      sync.Mutex
	last    *statsapi.Summary
	lastAt  time.Time
	rates   map[string]rate
	disks   map[string]measured
	volumes map[string]measuredVolumes
}

type rate struct {
	at    time.Time
	total uint64
	nano  uint64
}

type measured struct {
	at           time.Time
	bytes, nodes uint64
}

type measuredVolumes struct {
	at    time.Time
	usage []volume.Usage
}

// New makes a Collector.
func New(c Config) *Collector {
	return &Collector{Config: c, started: c.Now(), rates: map[string]rate{}, disks: map[string]measured{}, volumes: map[string]measuredVolumes{}}
}

// Summary measures the node and all pods. It reuses measurements up to summaryAge old.
func (c *Collector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && c.Now().Sub(c.lastAt) < summaryAge {
		return c.last, nil
	}
	pods, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	node, err := c.node(ctx)
	if err != nil {
		return nil, err
	}
	c.last, c.lastAt = &statsapi.Summary{Node: *node, Pods: pods}, c.Now()
	return c.last, nil
}

// Node measures the node without its pods.
func (c *Collector) Node(ctx context.Context) (*statsapi.Summary, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.node(ctx)
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
	c.forget(known)
	return out, nil
}

// forget drops the measurements of removed pods.
func (c *Collector) forget(known map[string]*corev1.Pod) {
	for uid := range c.volumes {
		if known[uid] == nil {
			delete(c.volumes, uid)
		}
	}
	for path, m := range c.disks {
		if c.Now().Sub(m.at) > 10*diskAge {
			delete(c.disks, path)
		}
	}
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
	}
	if pod.Status.StartTime != nil {
		out.StartTime = *pod.Status.StartTime
	}
	now := metav1.NewTime(c.Now())
	var used, inodes uint64
	logDir := spec.LogDir(c.LogsDir, pod)
	for _, r := range linux.GetContainers() {
		name := r.GetAttributes().GetMetadata().GetName()
		st := statsapi.ContainerStats{
			Name: name, StartTime: out.StartTime, CPU: c.cpu(r.GetAttributes().GetId(), r.GetCpu()), Memory: memory(r.GetMemory()),
			Rootfs: &statsapi.FsStats{Time: now, UsedBytes: value(r.GetWritableLayer().GetUsedBytes()), InodesUsed: value(r.GetWritableLayer().GetInodesUsed())},
		}
		logs := c.disk(filepath.Join(logDir, name))
		st.Logs = &statsapi.FsStats{Time: now, UsedBytes: &logs.bytes, InodesUsed: &logs.nodes}
		if st.Rootfs.UsedBytes != nil {
			used += *st.Rootfs.UsedBytes
		}
		if st.Rootfs.InodesUsed != nil {
			inodes += *st.Rootfs.InodesUsed
		}
		used, inodes = used+logs.bytes, inodes+logs.nodes
		out.Containers = append(out.Containers, st)
	}
	for _, v := range c.podVolumes(pod) {
		vs := statsapi.VolumeStats{Name: v.Name, FsStats: statsapi.FsStats{
			Time: now, AvailableBytes: ptr(v.Available), CapacityBytes: ptr(v.CapacityBytes), UsedBytes: ptr(v.UsedBytes),
			Inodes: ptr(v.Inodes), InodesFree: ptr(v.InodesFree), InodesUsed: ptr(v.InodesUsed),
		}}
		if v.Claim != "" {
			vs.PVCRef = &statsapi.PVCReference{Name: v.Claim, Namespace: pod.Namespace}
		} else if !inMemory(pod, v.Name) {
			used, inodes = used+v.UsedBytes, inodes+v.InodesUsed
		}
		out.VolumeStats = append(out.VolumeStats, vs)
	}
	fs := filesystem(c.RootDir)
	out.EphemeralStorage = &statsapi.FsStats{
		Time: now, UsedBytes: &used, InodesUsed: &inodes, AvailableBytes: fs.AvailableBytes, CapacityBytes: fs.CapacityBytes, Inodes: fs.Inodes, InodesFree: fs.InodesFree,
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

func (c *Collector) podVolumes(pod *corev1.Pod) []volume.Usage {
	if c.VolumeUsage == nil {
		return nil
	}
	uid := string(pod.UID)
	if m, ok := c.volumes[uid]; ok && c.Now().Sub(m.at) < diskAge {
		return m.usage
	}
	usage, err := c.VolumeUsage(pod, spec.PodDir(c.RootDir, pod.UID))
	if err != nil {
		return nil
	}
	c.volumes[uid] = measuredVolumes{c.Now(), usage}
	return usage
}

// disk measures a small folder. It reuses recent measurements.
func (c *Collector) disk(path string) measured {
	if m, ok := c.disks[path]; ok && c.Now().Sub(m.at) < diskAge {
		return m
	}
	m := measured{at: c.Now()}
	m.bytes, m.nodes = walk(path)
	c.disks[path] = m
	return m
}

func (c *Collector) cpu(key string, u *runtimeapi.CpuUsage) *statsapi.CPUStats {
	if u == nil {
		return nil
	}
	out := &statsapi.CPUStats{Time: metav1.Unix(0, u.Timestamp), UsageCoreNanoSeconds: value(u.UsageCoreNanoSeconds), UsageNanoCores: value(u.UsageNanoCores)}
	if out.UsageNanoCores == nil && out.UsageCoreNanoSeconds != nil {
		out.UsageNanoCores = c.rate(key, out.Time.Time, *out.UsageCoreNanoSeconds)
	}
	return out
}

// rate is the CPU usage in billionths of a core since the last measurement, or nil for the first
// one.
func (c *Collector) rate(key string, at time.Time, total uint64) *uint64 {
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
		RSSBytes: value(u.RssBytes), PageFaults: value(u.PageFaults), MajorPageFaults: value(u.MajorPageFaults),
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
