package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const loopControl = "/dev/loop-control"

// haveLoops reports whether this process can attach loop devices.
func haveLoops() bool {
	return unix.Access(loopControl, unix.R_OK|unix.W_OK) == nil
}

// attachedTo returns the loop device of a file, "" if it has none. The kernel compares nothing by
// name, so neither does this: another mount namespace may have attached the file.
func attachedTo(file string) (string, error) {
	var want unix.Stat_t
	if err := unix.Stat(file, &want); err != nil {
		return "", &os.PathError{Op: "stat", Path: file, Err: err}
	}
	bound, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return "", err
	}
	for _, dir := range bound {
		device := "/dev/" + filepath.Base(filepath.Dir(dir))
		info, err := loopInfo(device)
		if err != nil {
			continue // detached meanwhile, or not ours to open
		}
		if info.Device == want.Dev && info.Inode == want.Ino {
			return device, nil
		}
	}
	return "", nil
}

func loopInfo(device string) (*unix.LoopInfo64, error) {
	d, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return unix.IoctlLoopGetStatus64(int(d.Fd()))
}

// attach attaches a file to a loop device and returns the open device. With autoclear, the kernel
// detaches it when the last user, such as a mount, is gone; so a process that is killed before it
// mounts the device leaves none.
func attach(file string, autoclear bool) (*os.File, error) {
	backing, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	control, err := os.OpenFile(loopControl, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	if autoclear {
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], file)
	for range 64 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := openLoop(n)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			// Without a second copy of all data in the page cache; not all file systems can.
			_ = unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_DIRECT_IO, 1)
			return device, nil
		}
		_ = device.Close()
		if !errors.Is(err, unix.EBUSY) { // another process was faster
			return nil, fmt.Errorf("attach %s to %s: %w", file, device.Name(), err)
		}
	}
	return nil, fmt.Errorf("attach %s: no free loop device", file)
}

// openLoop opens a loop device, and makes its node if nothing else does.
func openLoop(n int) (*os.File, error) {
	path := "/dev/loop" + strconv.Itoa(n)
	device, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		const loopMajor = 7
		if err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(n)))); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("make %s: %w", path, err)
		}
		device, err = os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	}
	return device, err
}

// ensureAttached returns the loop device of a file, which stays attached after this process.
func ensureAttached(file string) (string, error) {
	device, err := attachedTo(file)
	if device != "" || err != nil {
		return device, err
	}
	d, err := attach(file, false)
	if err != nil {
		return "", err
	}
	return d.Name(), d.Close()
}

// detach detaches the loop device of a file. A device in use is detached when its last user closes
// it.
func detach(file string) error {
	device, err := attachedTo(file)
	if device == "" || err != nil {
		return err
	}
	d, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.IoctlSetInt(int(d.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s from %s: %w", file, device, err)
	}
	return nil
}

// growLoop makes a loop device as large as its file.
func growLoop(device string) error {
	d, err := os.OpenFile(device, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.IoctlSetInt(int(d.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("grow %s: %w", device, err)
	}
	return nil
}
