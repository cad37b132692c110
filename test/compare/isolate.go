package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// The program runs as three processes. The first stays outside. It starts the second in new
// network, mount and process namespaces. When that has ended for any reason, it removes what
// belongs to no namespace: cgroups and kernel settings. The second is init of the process
// namespace. It prepares the namespaces, starts the third and reaps orphans (shims have no parent).
// The third measures. When init ends, the kernel ends everything in the namespaces: processes,
// mounts, links.
const (
	stageInit    = "init"
	stageMeasure = "measure"
)

// isolate is the first process.
func isolate(o *options) (int, error) {
	for _, hidden := range hiddenFolders {
		if state, err := filepath.Abs(o.state); err != nil || strings.HasPrefix(state+"/", hidden+"/") {
			return 1, fmt.Errorf("the data must not lie below %s: set TMPDIR to another folder", hidden)
		}
	}
	saved := readSettings()
	defer restoreSettings(saved)
	defer removeCgroups(o.cgroup)
	// The child must die with this process. The kernel applies that to the thread that started it.
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe", append(os.Args[1:], "--stage", stageInit, "--cgroup", o.cgroup)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, Setpgid: true,
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("make namespaces: %w", err)
	}
	go func() {
		for range signals {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// first is the second process, init of the process namespace.
func first() (int, error) {
	if err := prepare(); err != nil {
		return 1, fmt.Errorf("prepare the namespaces: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	args := append([]string{os.Args[0]}, append(os.Args[1:], "--stage", stageMeasure)...)
	worker, err := os.StartProcess("/proc/self/exe", args, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, err
	}
	go func() {
		for range signals {
			_ = worker.Signal(syscall.SIGTERM)
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait: %w", err)
		case pid == worker.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == worker.Pid:
			return 1, nil
		}
	}
}

// hiddenFolders are empty inside the namespaces, so that files that programs write there stay
// inside.
var hiddenFolders = []string{"/run", "/var/lib", "/var/log"}

// address is the machine's address inside. It is on a link that leads nowhere.
const address = "192.168.79.1"

func prepare() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, dir := range hiddenFolders {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cable0"}, PeerName: "cable1"}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("cable: %w", err)
	}
	peer, err := netlink.LinkByName("cable1")
	if err != nil {
		return err
	}
	own := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(cable, own); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	for _, link := range []netlink.Link{lo, cable, peer} {
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("%s: %w", link.Attrs().Name, err)
		}
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: cable.Attrs().Index, Gw: net.IPv4(192, 168, 79, 2)})
}

// settings lists kernel settings that node agents change and that belong to no namespace.
var settings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

func readSettings() map[string]string {
	values := map[string]string{}
	for _, name := range settings {
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil {
			values[name] = string(value)
		}
	}
	return values
}

func restoreSettings(saved map[string]string) {
	for name, value := range saved {
		if now, err := os.ReadFile("/proc/sys/" + name); err == nil && string(now) != value {
			_ = os.WriteFile("/proc/sys/"+name, []byte(value), 0o644)
		}
	}
}

// makeCgroup creates a cgroup in every hierarchy.
func makeCgroup(root string) error {
	for _, hierarchy := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(hierarchy, root), 0o755); err != nil {
			return err
		}
	}
	// A cpuset without CPUs accepts no process.
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		if value, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuset", f)); err == nil {
			_ = os.WriteFile(filepath.Join("/sys/fs/cgroup/cpuset", root, f), value, 0o644)
		}
	}
	return nil
}

func hierarchies() []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	for i, path := range found {
		found[i] = filepath.Dir(path)
	}
	return found
}

// removeCgroups removes every cgroup with the prefix, from the leaves up. The kernel needs a moment
// after the last process.
func removeCgroups(prefix string) {
	for range 50 {
		left := 0
		for _, hierarchy := range hierarchies() {
			roots, _ := filepath.Glob(filepath.Join(hierarchy, prefix+"*"))
			for _, root := range roots {
				left += removeFolders(root)
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprintf(os.Stderr, "compare: cgroups named %s* could not be removed\n", prefix)
}

func removeFolders(root string) (left int) {
	var dirs []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := os.Remove(dirs[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			left++
		}
	}
	return left
}
