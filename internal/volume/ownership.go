package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"
)

// fsGroup returns the pod's fsGroup, or nil.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// maxDepth limits how many folders deep giveToGroup descends; each level takes two file
// descriptors.
const maxDepth = 1000

// giveToGroup gives everything below path to the group and makes it accessible to it. It adds the
// permissions rw-rw---- (read-only volumes: r--r-----); folders also get group execution and setgid
// (API reference, PodSecurityContext.fsGroup).
//
// Containers of other pods may write to the volume meanwhile. Every step therefore acts on an open
// descriptor and looks names up relative to one, without following links. A link that replaces a
// file or folder cannot lead out of the volume.
func giveToGroup(path string, group int64, readOnly bool) error {
	fd, err := openNoFollow(unix.AT_FDCWD, path)
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", path, group, err)
	}
	defer unix.Close(fd)
	g := groupSetter{group: int(group), readOnly: readOnly}
	return g.tree(fd, path, 0)
}

// giveFolder is giveToGroup for a folder alone, without its content.
func giveFolder(path string, group int64) error {
	fd, err := openNoFollow(unix.AT_FDCWD, path)
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", path, group, err)
	}
	defer unix.Close(fd)
	g := groupSetter{group: int(group)}
	_, err = g.one(fd, path)
	return err
}

// openNoFollow opens a name with O_PATH. If the name is a link, it opens the link itself.
func openNoFollow(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// groupSetter changes the group of files.
type groupSetter struct {
	group    int
	readOnly bool
}

// tree changes what fd refers to and everything below it. path is for errors only.
func (g groupSetter) tree(fd int, path string, depth int) error {
	folder, err := g.one(fd, path)
	if err != nil || !folder {
		return err
	}
	if depth == maxDepth {
		return fmt.Errorf("give %s to group %d: it is more than %d folders deep", path[:min(len(path), 200)]+"...", g.group, maxDepth)
	}
	raw, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", path, g.group, err)
	}
	dir := os.NewFile(uintptr(raw), path)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if err := g.child(raw, name, path, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("give %s to group %d: %w", path, g.group, err)
		}
	}
}

func (g groupSetter) child(dir int, name, path string, depth int) error {
	fd, err := openNoFollow(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil // a container has removed it meanwhile
	}
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", filepath.Join(path, name), g.group, err)
	}
	defer unix.Close(fd)
	return g.tree(fd, filepath.Join(path, name), depth+1)
}

// one changes what fd refers to and reports whether that is a folder.
func (g groupSetter) one(fd int, path string) (folder bool, err error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return false, fmt.Errorf("give %s to group %d: %w", path, g.group, err)
	}
	if err := unix.Fchownat(fd, "", -1, g.group, unix.AT_EMPTY_PATH); err != nil {
		return false, fmt.Errorf("give %s to group %d: %w", path, g.group, err)
	}
	mode := stat.Mode&^unix.S_IFMT | 0o660
	if g.readOnly {
		mode = stat.Mode&^unix.S_IFMT | 0o440
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return false, nil
	case unix.S_IFDIR:
		folder = true
		mode |= unix.S_ISGID | 0o110
	}
	// fchmod does not accept an O_PATH descriptor; its path in /proc leads to the same file.
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode); err != nil {
		return folder, fmt.Errorf("give %s to group %d: %w", path, g.group, err)
	}
	return folder, nil
}

// giveClaim is giveToGroup for volumes that outlive the pod. With fsGroupChangePolicy
// OnRootMismatch, it skips the walk if the root folder is right already.
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
