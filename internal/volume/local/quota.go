package local

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Project quotas of ext4 and xfs: quotactl_fd(2) and ioctl_fsgetxattr of the kernel's
// documentation.
const (
	projectQuota  = 2
	getQuota      = 0x800007<<8 | projectQuota
	setQuota      = 0x800008<<8 | projectQuota
	limitsOfBytes = 1 // QIF_BLIMITS
	getAttributes = 0x801c581f
	setAttributes = 0x401c5820
	inheritFlag   = 0x200 // FS_XFLAG_PROJINHERIT
	quotaUnit     = 1024
	// Project ids of ours are above those that administrators give by hand.
	firstProject = 1 << 30
	projects     = 1 << 29
)

// diskQuota is struct if_dqblk.
type diskQuota struct {
	hardBytes, softBytes, usedBytes    uint64 // limits in units of quotaUnit
	hardInodes, softInodes, usedInodes uint64
	bytesTime, inodesTime              uint64
	valid                              uint32
	_                                  uint32
}

// attributes is struct fsxattr.
type attributes struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

func quotaCall(f *os.File, command uintptr, project uint32, q *diskQuota) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), command, uintptr(project), uintptr(unsafe.Pointer(q)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func attributesCall(f *os.File, request uintptr, a *attributes) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(a))); errno != 0 {
		return errno
	}
	return nil
}

// hasQuota reports whether project quotas are enforced below a folder.
func hasQuota(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	var q diskQuota
	if err := quotaCall(f, getQuota, firstProject, &q); err != nil && !errors.Is(err, unix.ENOENT) {
		return false
	}
	return enforcesQuota(dir)
}

// enforcesQuota looks for the mount option: a quota may also just count.
func enforcesQuota(dir string) bool {
	m, err := mountOf(dir)
	if err != nil {
		return false
	}
	for option := range strings.SplitSeq(m.options, ",") {
		if option == "prjquota" || option == "pquota" {
			return true
		}
	}
	return false
}

// Limited reports whether a folder of a persistent volume has a quota of its own. ext4 and xfs then
// answer statfs(2) for the folder by the quota. A pod may put anything in place of other folders,
// so this looks only at mounts of such volumes.
func Limited(dir string) bool {
	if filepath.Base(filepath.Dir(dir)) != podMounts {
		return false
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var a attributes
	err = attributesCall(f, getAttributes, &a)
	return err == nil && a.project >= firstProject && a.flags&inheritFlag != 0
}

// limitFolder gives an empty folder a project of its own with a limit. It returns the project.
func limitFolder(dir, name string, size int64) (uint32, error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	project, err := freeProject(f, name)
	if err != nil {
		return 0, err
	}
	var a attributes
	if err := attributesCall(f, getAttributes, &a); err != nil {
		return 0, fmt.Errorf("read the project of %s: %w", dir, err)
	}
	a.project, a.flags = project, a.flags|inheritFlag
	if err := attributesCall(f, setAttributes, &a); err != nil {
		return 0, fmt.Errorf("set the project of %s: %w", dir, err)
	}
	return project, limitProject(f, project, size)
}

// freeProject returns a project without limit and without files. The search begins at a hash of the
// name, so that several clusters on one file system seldom meet.
func freeProject(f *os.File, name string) (uint32, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	start := h.Sum32() % projects
	for i := range uint32(1000) {
		project := firstProject + (start+i)%projects
		var q diskQuota
		err := quotaCall(f, getQuota, project, &q)
		if errors.Is(err, unix.ENOENT) || err == nil && q.hardBytes == 0 && q.usedBytes == 0 && q.usedInodes == 0 {
			return project, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read the quota of project %d: %w", project, err)
		}
	}
	return 0, fmt.Errorf("no free project from %d on", firstProject+start)
}

func limitProject(f *os.File, project uint32, size int64) error {
	units := uint64(size+quotaUnit-1) / quotaUnit
	q := diskQuota{hardBytes: units, softBytes: units, valid: limitsOfBytes}
	if err := quotaCall(f, setQuota, project, &q); err != nil {
		return fmt.Errorf("limit project %d to %d bytes: %w", project, size, err)
	}
	return nil
}

// setLimit changes the limit of a project; 0 removes it.
func setLimit(dir string, project uint32, size int64) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return limitProject(f, project, size)
}

// projectUsage returns the bytes that a project uses.
func projectUsage(dir string, project uint32) int64 {
	f, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer f.Close()
	var q diskQuota
	if quotaCall(f, getQuota, project, &q) != nil {
		return 0
	}
	return int64(q.usedBytes)
}
