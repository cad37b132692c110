package volume

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// unstageTimeout limits how long the end of a pod waits for a driver that unstages.
const unstageTimeout = 10 * time.Second

// stagingDir is the folder where a driver stages a volume on this node.
func (c *CSI) stagingDir(data csiData) string {
	root := filepath.Join(c.RootDir, "plugins", "kubernetes.io", "csi")
	if data.Block {
		return filepath.Join(root, devicesDir, "staging", data.SpecVolID)
	}
	sum := sha256.Sum256([]byte(data.VolumeHandle))
	return filepath.Join(root, data.DriverName, fmt.Sprintf("%x", sum), "globalmount")
}

// stagingRecord is the record of a staged volume. It exists from before the first call that stages
// the volume until after it is unstaged.
func (c *CSI) stagingRecord(data csiData) string {
	if data.Block {
		return filepath.Join(c.RootDir, "plugins", "kubernetes.io", "csi", devicesDir, data.SpecVolID, "data", csiDataFile)
	}
	return filepath.Join(filepath.Dir(c.stagingDir(data)), csiDataFile)
}

// unmountCSI asks the drivers to unpublish the pod's volumes, and to unstage volumes that no other
// pod of this node uses. A driver that hangs delays only its own volumes. A volume that cannot be
// unstaged does not delay the pod's end; Run tries again.
func (m *Manager) unmountCSI(ctx context.Context, podUID types.UID, podDir string) error {
	files, err := filepath.Glob(filepath.Join(podDir, volumesDir, csiPluginDir, "*", csiDataFile))
	if err != nil || len(files) == 0 {
		return err
	}
	problems := make([]error, len(files))
	var unmounting sync.WaitGroup
	for i, file := range files {
		name := filepath.Base(filepath.Dir(file))
		unmounting.Go(func() {
			err := m.operations.do(ctx, operationOf(podUID)+name, mountTimeout, func(ctx context.Context) error { return m.unmountCSIOne(ctx, file, podDir) })
			if err != nil {
				problems[i] = fmt.Errorf("volume %s: %w", name, err)
			}
		})
	}
	unmounting.Wait()
	return errors.Join(problems...)
}

func (m *Manager) unmountCSIOne(ctx context.Context, file, podDir string) error {
	data, err := readCSIData(file)
	if err != nil {
		return err
	}
	data.SpecVolID = filepath.Base(filepath.Dir(file)) // a part of paths
	driver, err := m.CSI.driver(data.DriverName)
	if err != nil {
		return err
	}
	target := targetOf(podDir, data)
	if _, err := driver.node.NodeUnpublishVolume(ctx, &csispec.NodeUnpublishVolumeRequest{VolumeId: data.VolumeHandle, TargetPath: target}); err != nil {
		return fmt.Errorf("NodeUnpublishVolume: %w", err)
	}
	if err := removeDevice(target); err != nil {
		return err
	}
	m.CSI.forgetCondition(target)
	// A volume staged by a version of knarr without such records gets one.
	if data.Published && data.LifecycleMode == storagev1.VolumeLifecyclePersistent && driver.capabilities[stageCapability] {
		if err := m.CSI.records.stage(m.CSI.stagingRecord(data), data); err != nil {
			return err
		}
	}
	if err := m.CSI.records.remove(file); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unstageTimeout)
	defer cancel()
	m.CSI.unstageUnused(ctx, data)
	return nil
}

// unstageUnused unstages a volume if it is staged and no pod uses it.
func (c *CSI) unstageUnused(ctx context.Context, data csiData) {
	record := c.stagingRecord(data)
	err := c.staging.do(ctx, data.volumeName(), csiTimeout, func(ctx context.Context) error {
		if !c.records.isStaged(record) || c.records.usedByOthers("", data) {
			return nil
		}
		driver, err := c.driver(data.DriverName)
		if err != nil {
			return err
		}
		if err := c.unstage(ctx, driver, data); err != nil {
			return err
		}
		return c.records.remove(record)
	})
	switch {
	case err == nil && c.Released != nil:
		c.Released()
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		c.Log.Warn("cannot unstage a volume that no pod uses; trying again", "driver", data.DriverName, "volume", data.VolumeHandle, "error", err)
	}
}

// unstageAll unstages the volumes that no pod uses, such as those of a process that was killed.
func (c *CSI) unstageAll(ctx context.Context) {
	var unstaging sync.WaitGroup
	defer unstaging.Wait()
	for _, data := range c.records.unused() {
		if _, err := c.driver(data.DriverName); err == nil {
			unstaging.Go(func() { c.unstageUnused(ctx, data) })
		}
	}
}

func (c *CSI) unstage(ctx context.Context, driver *csiDriver, data csiData) error {
	dir := c.stagingDir(data)
	if _, err := driver.node.NodeUnstageVolume(ctx, &csispec.NodeUnstageVolumeRequest{VolumeId: data.VolumeHandle, StagingTargetPath: dir}); err != nil {
		return fmt.Errorf("NodeUnstageVolume: %w", err)
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// VolumesInUse lists the attachable volumes that pods of this node use, for the node's status. The
// cluster must not detach them.
func (c *CSI) VolumesInUse() []string {
	if c == nil {
		return nil
	}
	return c.records.attached()
}
