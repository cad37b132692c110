package spec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/volume"
)

// devices lists the container's block volumes. The runtime makes the device nodes and permits them
// in the container's cgroup.
func devices(c *corev1.Container, volumes map[string]volume.MountPoint) ([]*runtimeapi.Device, error) {
	var out []*runtimeapi.Device
	for _, device := range c.VolumeDevices {
		from, ok := volumes[device.Name]
		if !ok || !from.Block {
			return nil, fmt.Errorf("cannot find block volume %q to map into container %q at %s", device.Name, c.Name, device.DevicePath)
		}
		permissions := "mrw"
		if from.ReadOnly {
			permissions = "mr"
		}
		out = append(out, &runtimeapi.Device{HostPath: from.HostPath, ContainerPath: device.DevicePath, Permissions: permissions})
	}
	return out, nil
}
