package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"golang.org/x/sys/unix"
)

// blockClaim stores a bound claim of a persistent volume.
func (b *bench) blockClaim(source corev1.PersistentVolumeSource, mode corev1.PersistentVolumeMode) {
	b.cluster.put("persistentvolumeclaims", "claim", &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{UID: "claim-uid"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv", VolumeMode: ptr.To(mode)},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	})
	b.cluster.objects["persistentvolumes//pv"] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{UID: "claim-uid"}, PersistentVolumeSource: source, VolumeMode: ptr.To(mode),
	}}
}

// devicePod returns a pod that uses the claim as a device.
func devicePod() *corev1.Pod {
	p := pod(volume("disk", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}))
	p.Spec.Containers[0].VolumeMounts = nil
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/xvda"}}
	return p
}

// madeDevice makes the node of a block device that need not exist.
func madeDevice(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))); errors.Is(err, unix.EPERM) {
		t.Skip("cannot make device nodes here")
	} else if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestALocalBlockVolumeIsADeviceBelowThePluginsFolderUntilItIsUnmounted(t *testing.T) {
	b := newBench(t)
	b.dir = filepath.Join(t.TempDir(), "pods", "uid-1")
	device := madeDevice(t)
	b.blockClaim(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device}}, corev1.PersistentVolumeBlock)
	p := devicePod()
	point := b.mount(p)["disk"]
	t.Cleanup(func() { _ = unmountBelow(rootOf(b.dir)) })
	if want := filepath.Join(rootOf(b.dir), "plugins/kubernetes.io/local-volume/volumeDevices/pv/uid-1"); point.HostPath != want || !point.Block {
		t.Errorf("it is %+v, want a device at %s", point, want)
	}
	var stat unix.Stat_t
	if err := unix.Stat(point.HostPath, &stat); err != nil || stat.Rdev != unix.Mkdev(7, 200) {
		t.Errorf("the device is %d (%v)", stat.Rdev, err)
	}
	b.mount(p) // keeps the mount
	if mounts, err := mountsBelow(point.HostPath); err != nil || len(mounts) != 1 {
		t.Errorf("mounts are %v (%v), want one", mounts, err)
	}
	other := New(Options{Client: b.cluster}) // a new process knows only the disk
	if err := other.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{filepath.Dir(point.HostPath), filepath.Join(b.dir, devicesDir)} {
		if _, err := os.Lstat(gone); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
	if _, err := os.Stat(device); err != nil {
		t.Errorf("the node's own device is gone: %v", err)
	}
}

func TestBlockVolumesAreRefusedWhereTheyCannotWork(t *testing.T) {
	folder := t.TempDir()
	for name, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		mode   corev1.PersistentVolumeMode
		pod    *corev1.Pod
		want   string
	}{
		"a folder as a device":           {corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}}, corev1.PersistentVolumeBlock, devicePod(), "is not a block device"},
		"a missing device":               {corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder + "/no"}}, corev1.PersistentVolumeBlock, devicePod(), "no such file"},
		"hostPath as a device":           {corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: folder}}, corev1.PersistentVolumeBlock, devicePod(), "no volumeMode Block"},
		"a file system in volumeDevices": {corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}}, corev1.PersistentVolumeFilesystem, devicePod(), "specified in volumeDevices"},
		"a device in volumeMounts": {corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}}, corev1.PersistentVolumeBlock,
			pod(volume("disk", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}})), "specified in volumeMounts"},
	} {
		b := newBench(t)
		b.dir = filepath.Join(t.TempDir(), "pods", "uid-1")
		b.blockClaim(c.source, c.mode)
		if _, err := b.Mount(t.Context(), c.pod, b.dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"disk"`) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
}
