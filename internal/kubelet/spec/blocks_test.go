package spec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/volume"
)

func TestBlockVolumesBecomeDevicesOfTheContainer(t *testing.T) {
	c := &corev1.Container{Name: "main", VolumeDevices: []corev1.VolumeDevice{{Name: "a", DevicePath: "/dev/a"}, {Name: "b", DevicePath: "/dev/b"}}}
	volumes := map[string]volume.MountPoint{"a": {HostPath: "/x", Block: true}, "b": {HostPath: "/y", Block: true, ReadOnly: true}}
	got, err := devices(c, volumes)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	if got[0].HostPath != "/x" || got[0].ContainerPath != "/dev/a" || got[0].Permissions != "mrw" || got[1].Permissions != "mr" {
		t.Errorf("devices are %v", got)
	}
	volumes["b"] = volume.MountPoint{HostPath: "/y"}
	if _, err := devices(c, volumes); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("a folder as a device: %v", err)
	}
}
