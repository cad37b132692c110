package kubelet

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/cgroup"
	"github.com/knarr-project/knarr/internal/kubelet/eviction"
	"github.com/knarr-project/knarr/internal/kubelet/settings"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// Pods must not take what knarr and the machine's other programs need. kubepods is limited to the
// capacity less what is reserved, so the kernel ends pods' processes first. See
// docs/adr/0055-protection-of-a-node.md.

// The reservation of memory by default, for knarr and the runtime.
const (
	reservedPart  = 20 // one twentieth
	leastReserved = 128 << 20
	mostReserved  = 512 << 20
)

// reservations returns what is reserved of the machine, and the thresholds of hard evictions.
func (k *Kubelet) reservations() (reserved, thresholds corev1.ResourceList, err error) {
	if reserved, err = k.Settings.Reserved(); err != nil {
		return nil, nil, err
	}
	if len(k.Settings.KubeReserved) == 0 && len(k.Settings.SystemReserved) == 0 {
		reserved = defaultReserved(k.machine.Memory, pidCapacity())
	}
	hard, err := eviction.Parse(k.Settings.EvictionHard, nil)
	if err != nil {
		return nil, nil, err
	}
	return reserved, corev1.ResourceList{
		corev1.ResourceMemory:           *resource.NewQuantity(eviction.Capacity(hard, eviction.MemoryAvailable, k.machine.Memory), resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(eviction.Capacity(hard, eviction.NodeFsAvailable, k.machine.Disk), resource.BinarySI),
	}, nil
}

// defaultReserved is reserved unless the settings reserve something. CPU is not: weights share it.
func defaultReserved(memory, pids int64) corev1.ResourceList {
	bytes := min(max(memory/reservedPart, leastReserved), mostReserved, memory/4)
	return corev1.ResourceList{
		corev1.ResourceMemory: *resource.NewQuantity(bytes, resource.BinarySI),
		"pid":                 *resource.NewQuantity(min(max(pids/reservedPart, 256), 4096, pids/4), resource.DecimalSI),
	}
}

// podLimits are the limits of all pods together.
func (k *Kubelet) podLimits() cgroup.Limits {
	all := k.node.ForPods()
	pid := k.node.Reserved["pid"]
	return cgroup.Limits{MilliCPU: all.Cpu().MilliValue(), Memory: all.Memory().Value(), PIDs: max(pidCapacity()-pid.Value(), 1)}
}

// pidCapacity is the number of processes that the machine can have.
func pidCapacity() int64 {
	most := int64(1 << 22)
	for _, file := range []string{
		"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max",
		"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max", // if the machine is a container
	} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 {
			most = min(most, n)
		}
	}
	return most
}

// enforce limits the cgroups that enforceNodeAllocatable names. It runs again and again: with
// cgroup v1 a limit cannot be set while pods use more, and others may remove it.
func (k *Kubelet) enforce() {
	if k.groups == nil {
		return
	}
	var err error
	for _, what := range k.Settings.EnforceNodeAllocatable {
		switch {
		case what == "pods":
			err = k.groups.EnforcePods()
		case strings.HasPrefix(what, "kube-reserved"):
			err = limitReserved(k.Settings.KubeReservedCgroup, k.Settings.KubeReserved, strings.HasSuffix(what, "-compressible"))
		case strings.HasPrefix(what, "system-reserved"):
			err = limitReserved(k.Settings.SystemReservedCgroup, k.Settings.SystemReserved, strings.HasSuffix(what, "-compressible"))
		}
		if err == nil {
			continue
		}
		if told := fmt.Sprintf("%s: %v", what, err); k.unenforced != told {
			k.unenforced = told
			k.log.Warn("cannot enforce the node's allocatable resources; trying again", "what", what, "error", err)
			k.Events.Eventf(k.node.Reference(), nil, corev1.EventTypeWarning, "FailedNodeAllocatableEnforcement", "Enforcing", "Failed to enforce node allocatable limits: %v", err)
		}
		return
	}
	k.unenforced = ""
}

// limitReserved limits a cgroup of other programs to their reservation. Only CPU is compressible.
func limitReserved(path string, reserved map[string]string, compressible bool) error {
	list, err := settings.Resources(reserved)
	if err != nil {
		return err
	}
	l := cgroup.Limits{MilliCPU: list.Cpu().MilliValue()}
	if !compressible {
		pid := list["pid"]
		l.Memory, l.PIDs = list.Memory().Value(), pid.Value()
	}
	return cgroup.Limit(path, l)
}

// sweepCgroups removes the cgroups of pods that are gone: a removal can fail, or be interrupted.
func (k *Kubelet) sweepCgroups() {
	if k.groups == nil {
		return
	}
	for _, uid := range k.groups.Pods() {
		if w := k.worker(uid); w != nil && w.View().Stage < worker.Released || w == nil && k.known(uid) {
			continue
		}
		if err := k.groups.Remove(uid); err != nil {
			if !slices.Contains(k.stuck, uid) {
				k.stuck = append(k.stuck, uid)
				k.log.Warn("cannot remove the cgroup of a pod that is gone; trying again", "uid", uid, "error", err)
			}
			continue
		}
		k.stuck = slices.DeleteFunc(k.stuck, func(u types.UID) bool { return u == uid })
	}
}
