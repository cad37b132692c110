package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/failpoint"
)

const (
	// leastImage is the smallest ext4 file system with a journal that holds a few files.
	leastImage  = 16 << 20
	toolTimeout = 10 * time.Minute
	// blockSize of the file systems, so that growth can be computed.
	blockSize = 4096
	sector    = 512
)

// tool returns the path of a program of e2fsprogs, "" if the machine lacks it.
func tool(name string) string {
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if unix.Access(dir+name, unix.X_OK) == nil {
			return dir + name
		}
	}
	return ""
}

// runTool runs a program of e2fsprogs. An exit status up to worst means success.
func runTool(ctx context.Context, worst int, name string, args ...string) error {
	program := tool(name)
	if program == "" {
		return fmt.Errorf("%s is missing; install e2fsprogs", name)
	}
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() <= worst {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %.200s", program, args[len(args)-1], err, out.Bytes())
	}
	return nil
}

// makeDisk makes a file of a size. Its space is allocated at once if the file system can do so
// without writing, so that a full disk cannot break the content later.
func makeDisk(root *os.Root, name string, size int64) error {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := extend(f, size); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func extend(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.Truncate(size)
	}
	if err != nil {
		return fmt.Errorf("allocate %d bytes for %s: %w", size, f.Name(), err)
	}
	return nil
}

// format makes an ext4 file system in a file.
func format(ctx context.Context, file string) error {
	// Discarding would give the file's allocated space back.
	return runTool(ctx, 0, "mkfs.ext4", "-q", "-F", "-b", fmt.Sprint(blockSize), "-m", "0", "-E", "nodiscard,lazy_itable_init=1", file)
}

// mountImage mounts an image at a folder, if it is not mounted there.
func mountImage(file, dir string) error {
	mounted, err := isMounted(dir)
	if mounted || err != nil {
		return err
	}
	if stale, err := attachedTo(file); err != nil {
		return err
	} else if stale != "" {
		// Another mount namespace may still have it mounted; two mounts of one device are one file
		// system, two devices of one file would destroy it.
		return mountDevice(stale, dir)
	}
	device, err := attach(file, true)
	if err != nil {
		return err
	}
	defer device.Close()
	failpoint.Here("local-attached")
	return mountDevice(device.Name(), dir)
}

func mountDevice(device, dir string) error {
	if err := unix.Mount(device, dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", device, dir, err)
	}
	return nil
}

// isMounted reports whether a folder is on another file system than its parent.
func isMounted(dir string) (bool, error) {
	var own, above unix.Stat_t
	if err := unix.Lstat(dir, &own); err != nil {
		return false, &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "lstat", Path: filepath.Dir(dir), Err: err}
	}
	return own.Dev != above.Dev, nil
}

// growImage grows the file, its loop device and the mounted file system.
func growImage(file, dir string, size int64) error {
	if err := mountImage(file, dir); err != nil {
		return err
	}
	if err := growDisk(file, size); err != nil {
		return err
	}
	at, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer at.Close()
	// EXT4_IOC_RESIZE_FS of the kernel's ext4 documentation: _IOW('f', 16, __u64), in blocks.
	const resize = 0x40086610
	blocks := uint64(size / blockSize)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, at.Fd(), resize, uintptr(unsafe.Pointer(&blocks))); errno != 0 {
		return fmt.Errorf("grow the file system at %s: %w", dir, errno)
	}
	return nil
}

// growUnmounted grows an image that no pod uses. The kernel grows a mounted file system only with
// CAP_SYS_RESOURCE, which some machines do not give.
func growUnmounted(ctx context.Context, file, dir string, size int64) error {
	if err := unmountAll(dir); err != nil {
		return err
	}
	if attached, err := attachedTo(file); err != nil || attached != "" {
		return errors.Join(err, fmt.Errorf("%s is in use as %q: a process in another mount namespace holds it", file, attached))
	}
	if err := growDisk(file, size); err != nil {
		return err
	}
	const corrected = 1 // e2fsck(8): errors corrected
	if err := runTool(ctx, corrected, "e2fsck", "-f", "-p", file); err != nil {
		return err
	}
	return runTool(ctx, 0, "resize2fs", file)
}

// growDisk grows a file, and its loop device if it has one.
func growDisk(file string, size int64) error {
	f, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < size {
		if err := extend(f, size); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	device, err := attachedTo(file)
	if device == "" || err != nil {
		return err
	}
	return growLoop(device)
}
