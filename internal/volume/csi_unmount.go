package volume

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	csiPluginDir = "kubernetes.io~csi"
	csiDataFile  = "vol_data.json"
)

// csiData is the file beside a mounted CSI volume that holds everything needed to unmount it. The
// format is upstream's.
type csiData struct {
	SpecVolID     string                        `json:"specVolID"`
	VolumeHandle  string                        `json:"volumeHandle"`
	DriverName    string                        `json:"driverName"`
	NodeName      string                        `json:"nodeName"`
	AttachmentID  string                        `json:"attachmentID"`
	LifecycleMode storagev1.VolumeLifecycleMode `json:"volumeLifecycleMode"`
}

func writeCSIData(dir string, data csiData) error {
	content, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	temporary := filepath.Join(dir, csiDataFile+".tmp")
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, csiDataFile))
}

func readCSIData(file string) (csiData, error) {
	var data csiData
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &data)
	}
	return data, err
}

// stagingDir is the folder where a driver stages a volume on this node.
func (c *CSI) stagingDir(driver, handle string) string {
	sum := sha256.Sum256([]byte(handle))
	return filepath.Join(c.RootDir, "plugins", "kubernetes.io", "csi", driver, fmt.Sprintf("%x", sum), "globalmount")
}

// unmountCSI asks the drivers to unpublish the pod's volumes, and to unstage volumes that no other
// pod of this node uses.
func (m *Manager) unmountCSI(ctx context.Context, podUID types.UID, podDir string) error {
	files, err := filepath.Glob(filepath.Join(podDir, volumesDir, csiPluginDir, "*", csiDataFile))
	if err != nil {
		return err
	}
	var problems []error
	for _, file := range files {
		if err := m.unmountCSIOne(ctx, file, filepath.Dir(podDir)); err != nil {
			problems = append(problems, fmt.Errorf("volume %s: %w", filepath.Base(filepath.Dir(file)), err))
		}
	}
	return errors.Join(problems...)
}

func (m *Manager) unmountCSIOne(ctx context.Context, file, podsDir string) error {
	ctx, cancel := context.WithTimeout(ctx, csiTimeout)
	defer cancel()
	data, err := readCSIData(file)
	if err != nil {
		return err
	}
	driver, err := m.CSI.driver(data.DriverName)
	if err != nil {
		return err
	}
	target := filepath.Join(filepath.Dir(file), "mount")
	if _, err := driver.node.NodeUnpublishVolume(ctx, &csispec.NodeUnpublishVolumeRequest{VolumeId: data.VolumeHandle, TargetPath: target}); err != nil {
		return fmt.Errorf("NodeUnpublishVolume: %w", err)
	}
	if err := unmountBelow(target); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m.CSI.staging.Lock()
	defer m.CSI.staging.Unlock()
	if data.LifecycleMode == storagev1.VolumeLifecyclePersistent && driver.capabilities[stageCapability] && !usedByOthers(podsDir, file, data) {
		if err := m.unstage(ctx, driver, data); err != nil {
			return err // keep the file, so that the next attempt repeats the call
		}
	}
	return os.Remove(file)
}

func (m *Manager) unstage(ctx context.Context, driver *csiDriver, data csiData) error {
	dir := m.CSI.stagingDir(driver.name, data.VolumeHandle)
	if _, err := driver.node.NodeUnstageVolume(ctx, &csispec.NodeUnstageVolumeRequest{VolumeId: data.VolumeHandle, StagingTargetPath: dir}); err != nil {
		return fmt.Errorf("NodeUnstageVolume: %w", err)
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	for _, gone := range []string{dir, filepath.Dir(dir)} {
		if err := os.Remove(gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// usedByOthers searches the records of all other pods on the node.
func usedByOthers(podsDir, own string, data csiData) bool {
	files, _ := filepath.Glob(filepath.Join(podsDir, "*", volumesDir, csiPluginDir, "*", csiDataFile))
	for _, file := range files {
		if file == own {
			continue
		}
		other, err := readCSIData(file)
		if err == nil && other.DriverName == data.DriverName && other.VolumeHandle == data.VolumeHandle {
			return true
		}
	}
	return false
}

// VolumesInUse lists the attachable volumes that pods of this node use, for the node's status. The
// cluster must not detach them.
func (c *CSI) VolumesInUse() []string {
	if c == nil {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(c.RootDir, "pods", "*", volumesDir, csiPluginDir, "*", csiDataFile))
	var names []string
	seen := map[string]bool{}
	for _, file := range files {
		data, err := readCSIData(file)
		name := "kubernetes.io/csi/" + data.DriverName + "^" + data.VolumeHandle
		if err == nil && data.LifecycleMode == storagev1.VolumeLifecyclePersistent && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}
