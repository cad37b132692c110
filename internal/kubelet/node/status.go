package node

import (
	"context"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/version"
)

// build computes the node's status. It keeps the parts of the old status that other writers own.
func (m *Manager) build(ctx context.Context, old *corev1.NodeStatus) corev1.NodeStatus {
	s := *old.DeepCopy()
	runtimeErr := m.AskRuntime(ctx)
	capacity, allocatable := m.Capacity(), m.Allocatable()
	for name, q := range old.Capacity {
		if _, ours := capacity[name]; !ours && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			capacity[name] = q // extended resources
			if a, ok := old.Allocatable[name]; ok {
				allocatable[name] = a
			} else {
				allocatable[name] = q
			}
		}
	}
	s.Capacity, s.Allocatable = capacity, allocatable
	s.Addresses = addresses(m.Name, m.Addresses)
	s.DaemonEndpoints = corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: m.Port}}
	m.mu.Lock()
	runtimeVersion := "Unknown"
	if m.runtime != nil {
		runtimeVersion = m.runtime.RuntimeName + "://" + m.runtime.RuntimeVersion
	}
	s.RuntimeHandlers, s.Features = m.handlers, m.features
	s.DeclaredFeatures = declaredFeatures
	networkErr := m.networkE
	m.mu.Unlock()
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: m.Machine.MachineID, SystemUUID: m.Machine.SystemUUID, BootID: m.Machine.BootID, KernelVersion: m.Machine.Kernel,
		OSImage: m.Machine.OSImage, ContainerRuntimeVersion: runtimeVersion, KubeletVersion: version.Kubernetes, OperatingSystem: m.Machine.OS,
		Architecture: m.Machine.Architecture,
	}
	if m.Machine.Swap > 0 {
		s.NodeInfo.Swap = &corev1.NodeSwapStatus{Capacity: &m.Machine.Swap}
	}
	if images, err := m.images(ctx); err == nil {
		s.Images = images
	}
	s.VolumesInUse = nil
	if m.VolumesInUse != nil {
		s.VolumesInUse = m.VolumesInUse()
	}
	m.conditions(&s, runtimeErr, networkErr)
	return s
}

func (m *Manager) images(ctx context.Context) ([]corev1.ContainerImage, error) {
	if m.MaxImages == 0 {
		return nil, nil
	}
	list, err := m.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, err
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Size != list[j].Size {
			return list[i].Size > list[j].Size
		}
		return list[i].Id < list[j].Id
	})
	var out []corev1.ContainerImage
	for _, i := range list {
		names := append(append([]string{}, i.RepoDigests...), i.RepoTags...)
		if len(names) == 0 {
			continue
		}
		if len(names) > 5 {
			names = names[:5]
		}
		if out = append(out, corev1.ContainerImage{Names: names, SizeBytes: int64(i.Size)}); len(out) == m.MaxImages {
			break
		}
	}
	return out, nil
}

func (m *Manager) conditions(s *corev1.NodeStatus, runtimeErr, networkErr error) {
	pressure := Pressure{}
	if m.Pressure != nil {
		pressure = m.Pressure()
	}
	m.set(s, corev1.NodeMemoryPressure, pressure.Memory, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available",
		"KubeletHasSufficientMemory", "kubelet has sufficient memory available")
	m.set(s, corev1.NodeDiskPressure, pressure.Disk, "KubeletHasDiskPressure", "kubelet has disk pressure",
		"KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	m.set(s, corev1.NodePIDPressure, pressure.PID, "KubeletHasInsufficientPID", "kubelet has insufficient PID available",
		"KubeletHasSufficientPID", "kubelet has sufficient PID available")
	var problems []string
	for _, err := range []error{runtimeErr, networkErr} {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	if m.Healthy != nil {
		if err := m.Healthy(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	m.ready.Store(len(problems) == 0)
	m.set(s, corev1.NodeReady, len(problems) == 0, "KubeletReady", "kubelet is posting ready status",
		"KubeletNotReady", strings.Join(problems, ", "))
}

// set sets one condition and records an event if it changed.
func (m *Manager) set(s *corev1.NodeStatus, t corev1.NodeConditionType, is bool, trueReason, trueMessage, falseReason, falseMessage string) {
	now := metav1.NewTime(m.Now()).Rfc3339Copy()
	c := corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: falseReason, Message: falseMessage, LastHeartbeatTime: now, LastTransitionTime: now}
	if is {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, trueReason, trueMessage
	}
	for i := range s.Conditions {
		if s.Conditions[i].Type != t {
			continue
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		} else {
			m.changed(t, is)
		}
		s.Conditions[i] = c
		return
	}
	s.Conditions = append(s.Conditions, c)
	m.changed(t, is)
}

func (m *Manager) changed(t corev1.NodeConditionType, is bool) {
	if m.quiet {
		return
	}
	reason := map[corev1.NodeConditionType][2]string{
		corev1.NodeMemoryPressure: {"NodeHasSufficientMemory", "NodeHasInsufficientMemory"},
		corev1.NodeDiskPressure:   {"NodeHasNoDiskPressure", "NodeHasDiskPressure"},
		corev1.NodePIDPressure:    {"NodeHasSufficientPID", "NodeHasInsufficientPID"},
		corev1.NodeReady:          {"NodeNotReady", "NodeReady"},
	}[t]
	word := reason[0]
	if is {
		word = reason[1]
	}
	m.Events.Eventf(m.Reference(), nil, corev1.EventTypeNormal, word, "UpdatingStatus", "Node %s status is now: %s", m.Name, word)
}
