package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/knarr-project/knarr/internal/kubelet/node"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// period is the interval of checks, as upstream.
const period = 10 * time.Second

// Manager watches the node's signals. It is safe for concurrent use.
type Manager struct {
	Thresholds []Threshold
	// Transition is how long a pressure lasts after it was last seen.
	Transition time.Duration
	// MaxGrace limits the grace period, in seconds, of pods that a soft threshold ends.
	MaxGrace int64
	// Node measures the node alone, which is cheap. Summary measures its pods too.
	Node, Summary func(ctx context.Context) (*statsapi.Summary, error)
	// Pods lists the pods that run.
	Pods func() []*corev1.Pod
	// Evict ends a pod. grace is in seconds.
	Evict func(pod *corev1.Pod, message string, grace int64)
	// Evicted counts an eviction by its signal; may be nil.
	Evicted func(signal string)
	// Reclaim frees disk space that no pod needs; may be nil.
	Reclaim func(ctx context.Context) error
	// Changed is called when a pressure begins or ends.
	Changed func()
	Now     func() time.Time
	Log     *slog.Logger

	mu       sync.Mutex
	lastSeen map[corev1.NodeConditionType]time.Time
	pressure node.Pressure
	since    map[string]time.Time // when each threshold was first exceeded
	met      map[string]bool      // thresholds that are in force until enough is reclaimed
}

// Pressure returns the current pressures of the node.
func (m *Manager) Pressure() node.Pressure {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pressure
}

// Run checks the signals every ten seconds until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		measure := m.Node
		if m.limited() {
			measure = m.Summary
		}
		summary, err := m.measure(ctx, measure)
		if err == nil && len(summary.Pods) == 0 && m.anyExceeded(summary) {
			summary, err = m.measure(ctx, m.Summary)
		}
		if err != nil {
			if ctx.Err() == nil {
				m.Log.Warn("cannot measure the node for evictions", "error", err)
			}
			continue
		}
		m.Evaluate(ctx, summary)
	}
}

// measure measures within a period. If the pods cannot be measured, for example because the runtime
// hangs, it measures the node alone, so that pressures are still seen.
func (m *Manager) measure(ctx context.Context, what func(context.Context) (*statsapi.Summary, error)) (*statsapi.Summary, error) {
	limited, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	summary, err := what(limited)
	if err != nil && ctx.Err() == nil {
		m.Log.Warn("cannot measure the pods for evictions", "error", err)
		return m.Node(ctx)
	}
	return summary, err
}

// limited reports whether any pod has limits of local storage. Only a measurement of the pods can
// check them.
func (m *Manager) limited() bool {
	for _, p := range m.Pods() {
		for i := range p.Spec.Volumes {
			if e := p.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil {
				return true
			}
		}
		for i := range p.Spec.Containers {
			if _, ok := p.Spec.Containers[i].Resources.Limits[corev1.ResourceEphemeralStorage]; ok {
				return true
			}
		}
	}
	return false
}

// anyExceeded reports whether any threshold is exceeded now.
func (m *Manager) anyExceeded(s *statsapi.Summary) bool {
	seen := observe(s)
	for _, t := range m.Thresholds {
		if o, ok := seen[t.Signal]; ok && o.available < t.limit(o) {
			return true
		}
	}
	return false
}

// Evaluate handles one measurement: it updates the pressures, frees disk space and evicts at most
// one pod.
func (m *Manager) Evaluate(ctx context.Context, s *statsapi.Summary) {
	pods := m.Pods()
	for _, pod := range pods {
		if message := overLimits(pod, podStats(s, pod)); message != "" {
			m.evict(pod, message, 1, "localstorage.limit")
		}
	}
	seen := observe(s)
	passed := m.passed(seen)
	m.conditions(passed)
	if len(passed) == 0 {
		return
	}
	worst := passed[0]
	if isDisk(worst.Signal) && m.Reclaim != nil {
		if err := m.Reclaim(ctx); err != nil {
			m.Log.Warn("cannot free disk space", "error", err)
		}
		if again, err := m.measure(ctx, m.Summary); err == nil {
			if o, ok := observe(again)[worst.Signal]; ok && o.available >= worst.target(o) {
				return
			}
		}
	}
	for _, pod := range rank(pods, s, worst.Signal) {
		if Critical(pod) {
			continue
		}
		grace := int64(1)
		if worst.Grace > 0 && pod.Spec.TerminationGracePeriodSeconds != nil {
			grace = max(min(*pod.Spec.TerminationGracePeriodSeconds, m.MaxGrace), 1)
		}
		m.evict(pod, message(pod, podStats(s, pod), worst, seen[worst.Signal]), grace, string(worst.Signal))
		return // one at a time: the next measurement shows whether it was enough
	}
}

func (m *Manager) evict(pod *corev1.Pod, message string, grace int64, signal string) {
	if m.Evicted != nil {
		m.Evicted(signal)
	}
	m.Evict(pod, message, grace)
}

func isDisk(s Signal) bool { return s != MemoryAvailable && s != PIDAvailable }

// observe extracts the signals from a measurement.
func observe(s *statsapi.Summary) map[Signal]observation {
	out := map[Signal]observation{}
	if m := s.Node.Memory; m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		out[MemoryAvailable] = observation{int64(*m.AvailableBytes), int64(*m.AvailableBytes + *m.WorkingSetBytes)}
	}
	fs := func(f *statsapi.FsStats, bytes, inodes Signal) {
		if f == nil {
			return
		}
		if f.AvailableBytes != nil && f.CapacityBytes != nil {
			out[bytes] = observation{int64(*f.AvailableBytes), int64(*f.CapacityBytes)}
		}
		if f.InodesFree != nil && f.Inodes != nil && *f.Inodes > 0 {
			out[inodes] = observation{int64(*f.InodesFree), int64(*f.Inodes)}
		}
	}
	fs(s.Node.Fs, NodeFsAvailable, NodeFsInodesFree)
	if s.Node.Runtime != nil {
		fs(s.Node.Runtime.ImageFs, ImageFsAvailable, ImageFsInodesFree)
	}
	if r := s.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		out[PIDAvailable] = observation{*r.MaxPID - *r.NumOfRunningProcesses, *r.MaxPID}
	}
	return out
}

// passed lists the thresholds that have been exceeded for their grace period. Memory comes first,
// because a lack of memory kills a node fastest.
func (m *Manager) passed(seen map[Signal]observation) []Threshold {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since == nil {
		m.since, m.met = map[string]time.Time{}, map[string]bool{}
	}
	var out []Threshold
	for _, t := range m.Thresholds {
		o, ok := seen[t.Signal]
		key := fmt.Sprintf("%s/%v/%v", t.Signal, t.limit(o), t.Grace)
		enough := t.limit(o)
		if m.met[key] {
			enough = t.target(o)
		}
		if !ok || o.available >= enough {
			delete(m.since, key)
			delete(m.met, key)
			continue
		}
		if m.since[key].IsZero() {
			m.since[key] = m.Now()
		}
		if m.Now().Sub(m.since[key]) >= t.Grace {
			m.met[key] = true
			out = append(out, t)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Signal == MemoryAvailable && out[j].Signal != MemoryAvailable })
	return out
}

// conditions keeps each pressure for a time after it was last seen, so that conditions do not flap.
func (m *Manager) conditions(passed []Threshold) {
	m.mu.Lock()
	if m.lastSeen == nil {
		m.lastSeen = map[corev1.NodeConditionType]time.Time{}
	}
	now := m.Now()
	for _, t := range passed {
		switch {
		case t.Signal == MemoryAvailable:
			m.lastSeen[corev1.NodeMemoryPressure] = now
		case t.Signal == PIDAvailable:
			m.lastSeen[corev1.NodePIDPressure] = now
		default:
			m.lastSeen[corev1.NodeDiskPressure] = now
		}
	}
	under := func(c corev1.NodeConditionType) bool {
		at, ok := m.lastSeen[c]
		return ok && now.Sub(at) < m.Transition
	}
	p := node.Pressure{Memory: under(corev1.NodeMemoryPressure), Disk: under(corev1.NodeDiskPressure), PID: under(corev1.NodePIDPressure)}
	changed := p != m.pressure
	m.pressure = p
	m.mu.Unlock()
	if changed && m.Changed != nil {
		m.Changed()
	}
}

// Refuses returns reason and message if the node's pressures forbid a new pod.
func (m *Manager) Refuses(pod *corev1.Pod) (reason, message string) {
	p := m.Pressure()
	if p == (node.Pressure{}) || Critical(pod) {
		return "", ""
	}
	if p.Memory && !p.Disk && !p.PID {
		if spec.QOS(pod) != corev1.PodQOSBestEffort {
			return "", ""
		}
		for _, t := range pod.Spec.Tolerations {
			if t.Key == corev1.TaintNodeMemoryPressure || t.Key == "" && t.Operator == corev1.TolerationOpExists {
				return "", ""
			}
		}
	}
	var conditions []string
	for _, c := range []struct {
		is   bool
		name corev1.NodeConditionType
	}{{p.Memory, corev1.NodeMemoryPressure}, {p.Disk, corev1.NodeDiskPressure}, {p.PID, corev1.NodePIDPressure}} {
		if c.is {
			conditions = append(conditions, string(c.name))
		}
	}
	return "Evicted", fmt.Sprintf("The node had condition: [%s]. ", strings.Join(conditions, " "))
}

// Critical reports whether a pod must not be evicted for other pods. This holds for static pods and
// system priorities.
func Critical(pod *corev1.Pod) bool {
	if source, ok := pod.Annotations[spec.AnnotationConfigSource]; ok && source != "api" {
		return true
	}
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= 2000000000
}

func podStats(s *statsapi.Summary, pod *corev1.Pod) *statsapi.PodStats {
	for i := range s.Pods {
		if s.Pods[i].PodRef.UID == string(pod.UID) {
			return &s.Pods[i]
		}
	}
	return nil
}

// rank orders pods for eviction: first the pods that use more than their requests, then by lower
// priority, then by the largest excess.
func rank(pods []*corev1.Pod, s *statsapi.Summary, signal Signal) []*corev1.Pod {
	over := map[*corev1.Pod]int64{}
	for _, p := range pods {
		used, requested := usage(p, podStats(s, p), signal)
		over[p] = used - requested
	}
	out := append([]*corev1.Pod{}, pods...)
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if x, y := over[a] > 0, over[b] > 0; x != y {
			return x
		}
		if x, y := priority(a), priority(b); x != y {
			return x < y
		}
		return over[a] > over[b]
	})
	return out
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// usage returns the pod's usage of the signal's resource, and its request.
func usage(pod *corev1.Pod, st *statsapi.PodStats, signal Signal) (used, requested int64) {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if st == nil {
		return 0, 0
	}
	switch signal {
	case MemoryAvailable:
		if st.Memory != nil && st.Memory.WorkingSetBytes != nil {
			used = int64(*st.Memory.WorkingSetBytes)
		}
		return used, requests.Memory().Value()
	case PIDAvailable:
		if st.ProcessStats != nil && st.ProcessStats.ProcessCount != nil {
			used = int64(*st.ProcessStats.ProcessCount)
		}
		return used, 0
	case NodeFsInodesFree, ImageFsInodesFree:
		if st.EphemeralStorage != nil && st.EphemeralStorage.InodesUsed != nil {
			used = int64(*st.EphemeralStorage.InodesUsed)
		}
		return used, 0
	}
	if st.EphemeralStorage != nil && st.EphemeralStorage.UsedBytes != nil {
		used = int64(*st.EphemeralStorage.UsedBytes)
	}
	return used, requests.StorageEphemeral().Value()
}

var resources = map[Signal]corev1.ResourceName{
	MemoryAvailable: corev1.ResourceMemory, NodeFsAvailable: corev1.ResourceEphemeralStorage, ImageFsAvailable: corev1.ResourceEphemeralStorage,
	NodeFsInodesFree: "inodes", ImageFsInodesFree: "inodes", PIDAvailable: "pids",
}

func message(pod *corev1.Pod, st *statsapi.PodStats, t Threshold, o observation) string {
	name := resources[t.Signal]
	quantity := func(v int64) string { return resource.NewQuantity(v, resource.BinarySI).String() }
	m := fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %s, available: %s. ", name, quantity(t.limit(o)), quantity(o.available))
	if st == nil || t.Signal != MemoryAvailable {
		return m
	}
	for _, c := range st.Containers {
		container := spec.FindContainer(pod, c.Name)
		if container == nil || c.Memory == nil || c.Memory.WorkingSetBytes == nil {
			continue
		}
		request := container.Resources.Requests[name]
		if used := int64(*c.Memory.WorkingSetBytes); used > request.Value() {
			m += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name, quantity(used), request.String(), name)
		}
	}
	return m
}

// overLimits returns the message about a local storage limit that the pod exceeds, or "".
func overLimits(pod *corev1.Pod, st *statsapi.PodStats) string {
	if st == nil {
		return ""
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		for _, u := range st.VolumeStats {
			if u.Name == v.Name && u.UsedBytes != nil && int64(*u.UsedBytes) > v.EmptyDir.SizeLimit.Value() {
				return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())
			}
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	if limit := limits[corev1.ResourceEphemeralStorage]; limit.Sign() > 0 && st.EphemeralStorage != nil && st.EphemeralStorage.UsedBytes != nil &&
		allLimited(pod) && int64(*st.EphemeralStorage.UsedBytes) > limit.Value() {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for _, c := range st.Containers {
		container := spec.FindContainer(pod, c.Name)
		if container == nil {
			continue
		}
		limit := container.Resources.Limits[corev1.ResourceEphemeralStorage]
		used := uint64(0)
		for _, f := range []*statsapi.FsStats{c.Rootfs, c.Logs} {
			if f != nil && f.UsedBytes != nil {
				used += *f.UsedBytes
			}
		}
		if limit.Sign() > 0 && int64(used) > limit.Value() {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
		}
	}
	return ""
}

func allLimited(pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		if _, ok := pod.Spec.Containers[i].Resources.Limits[corev1.ResourceEphemeralStorage]; !ok {
			return false
		}
	}
	return true
}
