package cgroup

import (
	"fmt"
	"path"

	"github.com/opencontainers/cgroups"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// Limits bound a cgroup that holds many processes. Zero values set no limit.
type Limits struct {
	MilliCPU int64 // as a weight against other cgroups
	Memory   int64 // bytes
	PIDs     int64
}

func (l Limits) resources() *cgroups.Resources {
	r := &cgroups.Resources{SkipDevices: true}
	if l.MilliCPU > 0 {
		r.CpuShares = uint64(spec.Shares(l.MilliCPU))
		r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares)
	}
	r.Memory = -1
	if l.Memory > 0 {
		r.Memory = l.Memory
	}
	unlimited := int64(-1)
	r.PidsLimit = &unlimited
	if l.PIDs > 0 {
		r.PidsLimit = &l.PIDs
	}
	return r
}

// EnforcePods limits all pods together to All. The kernel then ends pods' processes before the
// machine runs out. With cgroup v1 it fails while pods use more; the caller tries again later.
func (m *Manager) EnforcePods() error {
	if err := m.Ready(); err != nil {
		return err
	}
	p := path.Join("/", m.Root, "kubepods")
	if err := m.apply(p, m.All.resources()); err != nil {
		return fmt.Errorf("limit cgroup %s to the node's allocatable resources: %w", p, err)
	}
	return nil
}

// Limit sets the limits of a cgroup of other processes. The cgroup must exist in all hierarchies
// that the limits need.
func Limit(p string, l Limits) error {
	m := &Manager{}
	dirs := m.dirs(path.Clean(p))
	if len(dirs) == 0 {
		return fmt.Errorf("cgroup %s: it does not exist; make it first", p)
	}
	if err := m.apply(path.Clean(p), l.resources()); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", p, err)
	}
	return nil
}

// RemoveAll removes Root and all below it. No pod may run.
func (m *Manager) RemoveAll() error {
	for _, dir := range m.dirs(path.Join("/", m.Root)) {
		if err := removeTree(dir); err != nil {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return nil
}
