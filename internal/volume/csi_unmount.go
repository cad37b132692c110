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

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stagingDir is the folder where a driver stages a volume on this node.
func (c *CSI) stagingDir(data csiData) string {
	root := filepath.Join(c.RootDir, "plugins", "kubernetes.io", "csi")
	if data.Block {
		return filepath.Join(root, devicesDir, "staging", data.SpecVolID)
	}
	sum := sha256.Sum256([]byte(data.VolumeHandle))
	return filepath.Join(root, data.DriverName, fmt.Sprintf("%x", sum), "globalmount")
}

// unmountCSI asks the drivers to unpublish the pod's volumes, and to unstage volumes that no other
// pod of this node uses. A driver that hangs delays only its own volumes.
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
	persistent := data.LifecycleMode == storagev1.VolumeLifecyclePersistent
	err = m.CSI.staging.do(ctx, data.volumeName(), csiTimeout, func(ctx context.Context) error {
		if persistent && driver.capabilities[stageCapability] && !m.CSI.records.usedByOthers(file, data) {
			if err := m.CSI.unstage(ctx, driver, data); err != nil {
				return err // keep the record, so that the next attempt repeats the call
			}
		}
		return m.CSI.records.remove(file)
	})
	if err == nil && persistent && m.CSI.Released != nil {
		m.CSI.Released()
	}
	return err
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
	if !data.Block {
		_ = os.Remove(filepath.Dir(dir))
	}
	return nil
}

// VolumesInUse lists the attachable volumes that pods of this node use, for the node's status. The
// cluster must not detach them.
func (c *CSI) VolumesInUse() []string {
	if c == nil {
		return nil
	}
	return c.records.persistent()
}
