package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/failpoint"
)

// emptyDir makes the folder, or keeps an existing one: its content belongs to the pod and survives
// every restart.
func (m *Manager) emptyDir(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource, dir string) error {
	switch {
	case source.Medium == corev1.StorageMediumDefault:
		return makeEmpty(dir, fsGroup(pod))
	case source.Medium == corev1.StorageMediumMemory:
		return m.memoryDir(pod, source.SizeLimit, dir)
	case source.Medium == corev1.StorageMediumHugePages, strings.HasPrefix(string(source.Medium), string(corev1.StorageMediumHugePagesPrefix)):
		return hugePages(pod, source.Medium, dir)
	}
	return fmt.Errorf("unknown storage medium %q", source.Medium)
}

// makeEmpty makes a folder that every user can write to. It sets the permissions under a temporary
// name, so that a folder of the final name is complete.
func makeEmpty(dir string, group *int64) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return err
	}
	if err := setRootMode(fresh, 0, group); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return os.Rename(fresh, dir)
}

// setRootMode sets the mode of a volume's root folder: 0777 and bits, and with an fsGroup also its
// group and setgid.
func setRootMode(dir string, bits fs.FileMode, group *int64) error {
	if err := os.Chmod(dir, 0o777|bits); err != nil {
		return err
	}
	if group == nil {
		return nil
	}
	return giveFolder(dir, *group)
}

// memoryDir mounts a tmpfs. Its size is the smallest of sizeLimit, the pod's memory limit and the
// node's allocatable memory.
func (m *Manager) memoryDir(pod *corev1.Pod, limit *resource.Quantity, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	mounted, err := isMountPoint(dir)
	if err != nil || mounted {
		return err
	}
	if err := mountTmpfs(dir, m.memorySize(pod, limit), fsGroup(pod)); err != nil {
		return err
	}
	failpoint.Here("tmpfs-mounted")
	return setRootMode(dir, fs.ModeSticky, fsGroup(pod))
}

func (m *Manager) memorySize(pod *corev1.Pod, limit *resource.Quantity) int64 {
	size := podMemoryLimit(pod)
	if size == 0 && m.Allocatable != nil {
		allocatable := m.Allocatable()
		size = allocatable.Memory().Value()
	}
	if limit != nil && limit.Value() > 0 && (size == 0 || limit.Value() < size) {
		size = limit.Value()
	}
	return size
}

// podMemoryLimit is the sum of the containers' limits, or 0 if a container has none.
func podMemoryLimit(pod *corev1.Pod) int64 {
	if pod.Spec.Resources != nil {
		if limit := pod.Spec.Resources.Limits.Memory(); !limit.IsZero() {
			return limit.Value()
		}
	}
	var sum int64
	for i := range pod.Spec.Containers {
		limit := pod.Spec.Containers[i].Resources.Limits.Memory()
		if limit.IsZero() {
			return 0
		}
		sum += limit.Value()
	}
	return sum
}

// hugePages mounts a hugetlbfs. Medium "HugePages" selects the only page size that the pod
// requests.
func hugePages(pod *corev1.Pod, medium corev1.StorageMedium, dir string) error {
	sizes := map[string]bool{}
	for i := range pod.Spec.Containers {
		for name := range pod.Spec.Containers[i].Resources.Requests {
			if size, found := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); found {
				sizes[size] = true
			}
		}
	}
	size := strings.TrimPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix))
	if medium == corev1.StorageMediumHugePages {
		if len(sizes) != 1 {
			return fmt.Errorf("medium %q needs a pod that requests huge pages of exactly one size; it requests %d sizes", medium, len(sizes))
		}
		for only := range sizes {
			size = only
		}
	} else if !sizes[size] {
		return fmt.Errorf("medium %q: the pod does not request huge pages of this size", medium)
	}
	bytes, err := resource.ParseQuantity(size)
	if err != nil {
		return fmt.Errorf("medium %q: %w", medium, err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if mounted, err := isMountPoint(dir); err != nil || mounted {
		return err
	}
	if err := unix.Mount("nodev", dir, "hugetlbfs", 0, fmt.Sprintf("pagesize=%d,%s", bytes.Value(), rootOptions(0, fsGroup(pod)))); err != nil {
		return fmt.Errorf("mount hugetlbfs with pages of %s: %w", size, err)
	}
	return setRootMode(dir, 0, fsGroup(pod))
}
