package volume

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

const (
	statsCapability     = csispec.NodeServiceCapability_RPC_GET_VOLUME_STATS
	conditionCapability = csispec.NodeServiceCapability_RPC_VOLUME_CONDITION
	// statsTimeout limits the measurement of one volume.
	statsTimeout = 10 * time.Second
)

// csiRecordOf returns the record of the volume that is mounted at dir. found is false for volumes
// of other types.
func csiRecordOf(dir string) (data csiData, found bool) {
	if filepath.Base(filepath.Dir(filepath.Dir(dir))) != csiPluginDir {
		return csiData{}, false
	}
	data, err := readCSIData(filepath.Join(filepath.Dir(dir), csiDataFile))
	return data, err == nil
}

// measureCSI asks the driver for the volume's usage. asked is false if the driver does not measure
// its volumes.
func (m *Manager) measureCSI(ctx context.Context, pod *corev1.Pod, dir string, data csiData) (usage Usage, asked bool, err error) {
	driver, err := m.CSI.driver(data.DriverName)
	if err != nil || !driver.capabilities[statsCapability] {
		return Usage{}, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	request := &csispec.NodeGetVolumeStatsRequest{VolumeId: data.VolumeHandle, VolumePath: dir}
	if data.LifecycleMode != "Ephemeral" && driver.capabilities[stageCapability] {
		request.StagingTargetPath = m.CSI.stagingDir(data)
	}
	answer, err := driver.node.NodeGetVolumeStats(ctx, request)
	if err != nil {
		return Usage{}, true, fmt.Errorf("NodeGetVolumeStats: %w", err)
	}
	usage = usageOf(answer)
	if condition := answer.VolumeCondition; condition != nil && driver.capabilities[conditionCapability] {
		usage.Abnormal = &condition.Abnormal
		m.reportCondition(pod, dir, data, condition)
	}
	return usage, true, nil
}

// usageOf reads a driver's answer. It ignores negative numbers and unknown units.
func usageOf(answer *csispec.NodeGetVolumeStatsResponse) Usage {
	var usage Usage
	natural := func(n int64) uint64 { return uint64(max(n, 0)) }
	for _, u := range answer.GetUsage() {
		switch u.GetUnit() {
		case csispec.VolumeUsage_BYTES:
			usage.CapacityBytes, usage.Available, usage.UsedBytes = natural(u.Total), natural(u.Available), natural(u.Used)
		case csispec.VolumeUsage_INODES:
			usage.Inodes, usage.InodesFree, usage.InodesUsed = natural(u.Total), natural(u.Available), natural(u.Used)
		}
	}
	return usage
}

// reportCondition records an event when the condition of a volume has become abnormal or has
// another reason.
func (m *Manager) reportCondition(pod *corev1.Pod, dir string, data csiData, condition *csispec.VolumeCondition) {
	message := ""
	if condition.Abnormal {
		message = condition.Message[:min(len(condition.Message), 900)]
		if message == "" {
			message = "the driver gives no reason"
		}
	}
	m.CSI.mu.Lock()
	before := m.CSI.abnormal[dir]
	m.CSI.abnormal[dir] = message
	if message == "" {
		delete(m.CSI.abnormal, dir)
	}
	m.CSI.mu.Unlock()
	if message != "" && message != before {
		m.event(pod, corev1.EventTypeWarning, "VolumeConditionAbnormal", "Measuring", "Volume %s: %s", data.SpecVolID, message)
	}
}

func (c *CSI) forgetCondition(dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.abnormal, dir)
}
