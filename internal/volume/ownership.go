package volume

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// fsGroup is the pod's fsGroup, or nil.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// giveToGroup makes everything below path belong to the group and be usable by it: permissions are or-ed with rw-rw---- (read-only
// volumes: r--r-----), folders also get group execution and setgid (API reference, PodSecurityContext.fsGroup).
func giveToGroup(path string, group int64, readOnly bool) error {
	return filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return giveOne(path, info, group, readOnly)
	})
}

func giveOne(path string, info fs.FileInfo, group int64, readOnly bool) error {
	if err := os.Lchown(path, -1, int(group)); err != nil {
		return fmt.Errorf("give %s to group %d: %w", path, group, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	mode := info.Mode() | 0o660
	if readOnly {
		mode = info.Mode() | 0o440
	}
	if info.IsDir() {
		mode |= fs.ModeSetgid | 0o110
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("give %s to group %d: %w", path, group, err)
	}
	return nil
}

// giveClaim is giveToGroup for volumes that outlive the pod: with fsGroupChangePolicy OnRootMismatch a root folder that is right
// already spares the walk.
func giveClaim(path string, pod *corev1.Pod, readOnly bool) error {
	group := fsGroup(pod)
	if group == nil {
		return nil
	}
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	if policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch && rootMatches(path, *group, readOnly) {
		return nil
	}
	return giveToGroup(path, *group, readOnly)
}

func rootMatches(path string, group int64, readOnly bool) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	want := fs.FileMode(0o660 | 0o110)
	if readOnly {
		want = 0o440 | 0o110
	}
	return ok && int64(stat.Gid) == group && info.Mode().Perm()&want == want && info.Mode()&fs.ModeSetgid != 0
}
