package volume

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// loopDevice attaches an empty file of 16 MiB as a block device for the test.
func loopDevice(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices: ", err)
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 16<<20); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	return device
}

func diskPod(uid types.UID) *corev1.Pod {
	p := pod(volume("disk", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}))
	p.UID = uid
	return p
}

func TestPodsOfOneNodeShareTheFileSystemThatIsMadeOnAnEmptyLocalDisk(t *testing.T) {
	device := loopDevice(t)
	b := newBench(t)
	b.dir = filepath.Join(t.TempDir(), "pods", "uid-1")
	b.blockClaim(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device}}, corev1.PersistentVolumeFilesystem)
	first := diskPod("uid-1")
	at := b.mount(first)["disk"].HostPath
	t.Cleanup(func() { _ = unmountBelow(b.dir) })
	if err := os.WriteFile(filepath.Join(at, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.mount(first) // keeps the mount
	if mounts, err := mountsBelow(at); err != nil || len(mounts) != 1 {
		t.Errorf("mounts are %v (%v), want one", mounts, err)
	}
	second, dir := diskPod("uid-2"), filepath.Join(filepath.Dir(b.dir), "uid-2")
	t.Cleanup(func() { _ = unmountBelow(dir) })
	points, err := b.Mount(t.Context(), second, dir)
	if err != nil {
		t.Fatal(err)
	}
	content := func() string {
		found, err := os.ReadFile(filepath.Join(points["disk"].HostPath, "file"))
		if err != nil {
			t.Error(err)
		}
		return string(found)
	}
	if got := content(); got != "kept" {
		t.Errorf("the second pod reads %q", got)
	}
	if err := b.Unmount(t.Context(), first.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	if got := content(); got != "kept" {
		t.Errorf("without the first pod, the second one reads %q", got)
	}
	if err := b.Unmount(t.Context(), second.UID, dir); err != nil {
		t.Fatal(err)
	}
	if points, err = b.Mount(t.Context(), diskPod("uid-3"), filepath.Join(filepath.Dir(b.dir), "uid-3")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unmountBelow(filepath.Join(filepath.Dir(b.dir), "uid-3")) })
	if got := content(); got != "kept" {
		t.Errorf("a later pod reads %q: the disk was formatted again", got)
	}
}

func TestALocalDiskKeepsItsFileSystem(t *testing.T) {
	device := loopDevice(t)
	for _, c := range []struct{ fsType, want string }{
		{"vfat", `fsType "vfat" is not supported: use one of ext4, ext3, ext2, xfs, btrfs`},
		{"ext2", ""},
		{"xfs", "mount failed"}, // the disk has an ext2
	} {
		b := newBench(t)
		b.dir = filepath.Join(t.TempDir(), "pods", "uid-1")
		b.blockClaim(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device, FSType: ptr.To(c.fsType)}}, corev1.PersistentVolumeFilesystem)
		p := diskPod("uid-1")
		_, err := b.Mount(t.Context(), p, b.dir)
		t.Cleanup(func() { _ = unmountBelow(b.dir) })
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", c.fsType, err, c.want)
		}
		if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
			t.Fatal(err)
		}
	}
}
