package driver

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// loop is a loop device with a volume's file. The kernel frees the device after the last user has
// closed it; the driver is one.
type loop struct {
	path string
	file *os.File
}

func (l *loop) close() { l.file.Close() }

// attachLoop returns the volume's loop device.
func (d *Driver) attachLoop(id string) (*loop, error) {
	if l := d.loops[id]; l != nil {
		return l, nil
	}
	backing, err := os.OpenFile(d.contentOf(id), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	// Another process may take the free device first.
	for range 100 {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		path := fmt.Sprintf("/dev/loop%d", number)
		// In a container the folder /dev may lack new devices.
		if err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(7, uint32(number)))); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(config.Info.File_name[:], "csi-"+id)
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			d.loops[id] = &loop{path, device}
			return d.loops[id], nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("configure %s: %w", path, err)
		}
	}
	return nil, errors.New("no loop device is free")
}

func (d *Driver) detachLoop(id string) {
	if l := d.loops[id]; l != nil {
		l.close()
		delete(d.loops, id)
	}
}

// grow tells the kernel that the file behind the device is larger.
func (l *loop) grow() error {
	return unix.IoctlSetInt(int(l.file.Fd()), unix.LOOP_SET_CAPACITY, 0)
}

// bind mounts a folder or file at another path.
func bind(from, to string, readOnly bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("mount %s read-only: %w", to, err), unix.Unmount(to, 0))
	}
	return nil
}

// unbind reverts bind. A path that is not mounted is no error.
func unbind(path string) error {
	err := unix.Unmount(path, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// mounted reports whether a mount is exactly at the path.
func mounted(path string) (bool, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	defer file.Close()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && unescape.Replace(fields[4]) == path {
			return true, nil
		}
	}
	return false, nil
}
