package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Controllers that a pod's cgroup must have, and those without which some limits are not enforced.
// Version 2 has no controllers for devices and the freezer, because they are built in.
var (
	neededV1 = []string{"cpu", "memory", "devices"}
	wantedV1 = []string{"cpuset", "pids", "freezer"}
	neededV2 = []string{"cpu", "memory", "pids"}
	wantedV2 = []string{"cpuset"}
)

const (
	whatCgroups = "cgroups"
	mountThem   = "mount them (mount -t cgroup2 cgroup2 /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1); " +
		"in a container, use the host's: docker run --privileged --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup"
	mountWritable = "mount -o remount,rw /sys/fs/cgroup; in a container, run it with --privileged"
)

// cgroupTree is a mount of cgroups and the operations on it, which tests replace.
type cgroupTree struct {
	dir string
	// fileSystem returns the type of the file system at a path.
	fileSystem   func(path string) int64
	make, remove func(dir string) error
	// enterV1 and enterV2 move a process, or a thread of this process, into the cgroup of a folder
	// and out of it again.
	enterV1, enterV2 func(dir string) error
}

func machineCgroups() cgroupTree {
	return cgroupTree{
		dir: "/sys/fs/cgroup", fileSystem: fileSystem, make: func(dir string) error { return os.Mkdir(dir, 0o755) }, remove: unix.Rmdir,
		enterV1: enterV1, enterV2: enterV2,
	}
}

func fileSystem(path string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return 0
	}
	return int64(fs.Type)
}

// check makes a cgroup below root in each hierarchy that pods need, moves a process into it, and
// removes it.
func (t cgroupTree) check(root string) Finding {
	if t.fileSystem(t.dir) == unix.CGROUP2_SUPER_MAGIC {
		return t.checkV2(root)
	}
	return t.checkV1(root)
}

func (t cgroupTree) checkV1(root string) Finding {
	var missing, lacking []string
	mounts := map[string]string{}
	for _, c := range slices.Concat(neededV1, wantedV1) {
		dir, found := t.hierarchy(c)
		switch {
		case found:
			mounts[dir] = c
		case slices.Contains(neededV1, c):
			missing = append(missing, c)
		default:
			lacking = append(lacking, c)
		}
	}
	if len(mounts) == 0 {
		return Finding{Broken, whatCgroups, "no controller is mounted below " + t.dir, mountThem}
	}
	if len(missing) > 0 {
		return Finding{Broken, whatCgroups, "version 1 without " + strings.Join(missing, ", "), mountThem}
	}
	for dir, c := range mounts {
		err := t.tryV1(dir, root)
		switch {
		case err == nil:
		case slices.Contains(neededV1, c):
			return Finding{Broken, whatCgroups, fmt.Sprintf("version 1, and the controller %s is not usable: %v", c, err), cgroupRemedy(err)}
		default:
			lacking = append(lacking, c)
		}
	}
	if len(lacking) > 0 {
		slices.Sort(lacking)
		return Finding{Degraded, whatCgroups, "version 1 without " + strings.Join(lacking, ", "), "mount these controllers too; without them some limits of pods do not hold"}
	}
	return Finding{Fine, whatCgroups, "version 1", ""}
}

// hierarchy returns the folder of a version 1 controller, which may be mounted together with others
// ("cpu,cpuacct").
func (t cgroupTree) hierarchy(controller string) (string, bool) {
	entries, _ := os.ReadDir(t.dir)
	for _, e := range entries {
		if !slices.Contains(strings.Split(e.Name(), ","), controller) {
			continue
		}
		dir, err := filepath.EvalSymlinks(filepath.Join(t.dir, e.Name()))
		if err == nil && t.fileSystem(dir) == unix.CGROUP_SUPER_MAGIC {
			return dir, true
		}
	}
	return "", false
}

func (t cgroupTree) tryV1(hierarchy, root string) error {
	return t.inChild(hierarchy, root, func(dir string) error {
		if err := inheritCPUs(hierarchy, dir); err != nil {
			return err
		}
		return t.enterV1(dir)
	})
}

// inheritCPUs copies the parent's values into new cgroups of the cpuset controller. They start
// empty and accept no process then.
func inheritCPUs(hierarchy, dir string) error {
	var path []string
	for d := dir; d != hierarchy && len(d) > len(hierarchy); d = filepath.Dir(d) {
		path = append(path, d)
	}
	for _, d := range slices.Backward(path) {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			have, err := os.ReadFile(filepath.Join(d, file))
			if err != nil || strings.TrimSpace(string(have)) != "" {
				continue
			}
			above, err := os.ReadFile(filepath.Join(filepath.Dir(d), file))
			if err == nil {
				err = writeExisting(filepath.Join(d, file), strings.TrimSpace(string(above)))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (t cgroupTree) checkV2(root string) Finding {
	here := words(filepath.Join(t.dir, "cgroup.controllers"))
	if missing := without(neededV2, here); len(missing) > 0 {
		return Finding{Broken, whatCgroups, "version 2 without " + strings.Join(missing, ", "),
			"enable the controllers in the kernel (cgroup_enable=memory on its command line), or in the cgroup above this container"}
	}
	var lacking []string
	err := t.inChild(t.dir, root, func(dir string) error {
		undo, delegation := t.delegate(dir)
		defer undo()
		have := words(filepath.Join(dir, "cgroup.controllers"))
		if missing := without(neededV2, have); len(missing) > 0 {
			return notDelegated{missing, delegation}
		}
		lacking = without(wantedV2, have)
		return t.enterV2(dir)
	})
	var refused notDelegated
	switch {
	case errors.As(err, &refused):
		return Finding{Broken, whatCgroups, "version 2, and " + err.Error(), refused.remedy(t.dir)}
	case err != nil:
		return Finding{Broken, whatCgroups, fmt.Sprintf("version 2, not usable: %v", err), cgroupRemedy(err)}
	case len(lacking) > 0:
		return Finding{Degraded, whatCgroups, "version 2 without " + strings.Join(lacking, ", "), "enable the controller in the cgroup above; without it some limits of pods do not hold"}
	}
	return Finding{Fine, whatCgroups, "version 2", ""}
}

// delegate enables missing controllers in all cgroups from the top to the parent of dir, as the
// node agent does. undo disables them again. err is the first error; the controllers of dir show
// whether it matters.
func (t cgroupTree) delegate(dir string) (undo func(), err error) {
	var undone []func()
	undo = func() {
		for _, fn := range slices.Backward(undone) {
			fn()
		}
	}
	relative, err := filepath.Rel(t.dir, filepath.Dir(dir))
	if err != nil {
		return undo, err
	}
	at := t.dir
	for _, name := range append([]string{""}, strings.Split(relative, "/")...) {
		if name == "." {
			continue
		}
		at = filepath.Join(at, name)
		control := filepath.Join(at, "cgroup.subtree_control")
		for _, c := range without(slices.Concat(neededV2, wantedV2), words(control)) {
			e := writeExisting(control, "+"+c)
			if e == nil {
				undone = append(undone, func() { _ = writeExisting(control, "-"+c) })
			} else if err == nil {
				err = fmt.Errorf("%s: %w", control, e)
			}
		}
	}
	return undo, err
}

// notDelegated is the error of controllers that cannot be enabled for the cgroups below.
type notDelegated struct {
	controllers []string
	cause       error
}

func (n notDelegated) Error() string {
	text := "its controllers " + strings.Join(n.controllers, ", ") + " are not delegated"
	if n.cause != nil {
		text += ": " + n.cause.Error()
	}
	return text
}

func (n notDelegated) remedy(dir string) string {
	if errors.Is(n.cause, unix.EBUSY) {
		// Processes may not be in a cgroup whose children have controllers.
		return fmt.Sprintf("move the processes of this container out of its top cgroup first: mkdir %[1]s/init; xargs -rn1 <%[1]s/cgroup.procs >%[1]s/init/cgroup.procs", dir)
	}
	return cgroupRemedy(n.cause)
}

func cgroupRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return mountWritable
	case errors.Is(err, unix.ENOSPC):
		return "the machine has reached its number of cgroups, or the cgroup above has no CPUs: give it some, or choose another with --cgroup-root"
	}
	return "choose another cgroup with --cgroup-root, or run in a container with --privileged --cgroupns=host"
}

// inChild runs fn on a new cgroup below root. Then it removes the cgroup and the parents that it
// had to make.
func (t cgroupTree) inChild(hierarchy, root string, fn func(dir string) error) error {
	dir := filepath.Join(hierarchy, root, fmt.Sprintf("knarr-check-%d", os.Getpid()))
	var made []string
	for d := dir; len(d) > len(hierarchy); d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil {
			break
		}
		made = append(made, d)
	}
	defer func() {
		for _, d := range made {
			t.removeCgroup(d)
		}
	}()
	for _, d := range slices.Backward(made) {
		if err := t.make(d); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return fn(dir)
}

// removeCgroup removes an empty cgroup. A process that has just left may still count for a moment.
// A cgroup that other processes use meanwhile stays.
func (t cgroupTree) removeCgroup(dir string) {
	for range 50 {
		if err := t.remove(dir); !errors.Is(err, unix.EBUSY) {
			return
		}
		if entries, _ := os.ReadDir(dir); slices.ContainsFunc(entries, os.DirEntry.IsDir) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// enterV1 moves this thread into the cgroup and back.
func enterV1(dir string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := threadHome(dir)
	tid := strconv.Itoa(unix.Gettid())
	if err := writeExisting(filepath.Join(dir, "tasks"), tid); err != nil {
		return err
	}
	return writeExisting(filepath.Join(home, "tasks"), tid)
}

// threadHome returns the folder of this thread's cgroup in the hierarchy of dir.
func threadHome(dir string) string {
	// dir is HIERARCHY/ROOT/CHECK. The hierarchy's folder is the highest one on its file system.
	top := dir
	for above := filepath.Dir(top); fileSystem(above) == unix.CGROUP_SUPER_MAGIC && sameDevice(above, top); above = filepath.Dir(top) {
		top = above
	}
	controllers := strings.Split(filepath.Base(top), ",")
	data, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return top
	}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) < 3 || !slices.ContainsFunc(strings.Split(f[1], ","), func(c string) bool { return slices.Contains(controllers, c) }) {
			continue
		}
		if home := filepath.Join(top, f[2]); sameDevice(home, top) {
			return home
		}
	}
	return top // the mount shows only a part of the hierarchy
}

func sameDevice(a, b string) bool {
	var one, two unix.Stat_t
	return unix.Stat(a, &one) == nil && unix.Stat(b, &two) == nil && one.Dev == two.Dev
}

// enterV2 starts a process in the cgroup. The program does not exist, so the process ends before it
// runs.
func enterV2(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	attr := &os.ProcAttr{Sys: &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}}
	p, err := os.StartProcess("/proc/knarr-check/none", []string{"none"}, attr)
	switch {
	case err == nil:
		_ = p.Kill()
		_, _ = p.Wait()
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.E2BIG):
		// The program is missing as intended, or the kernel cannot start processes in cgroups
		// (before 5.7).
		return nil
	}
	return err
}

// writeExisting writes to a file that the kernel has made. Unlike os.WriteFile it creates no file.
func writeExisting(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func words(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

// without returns the elements of all that are not in have.
func without(all, have []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(c string) bool { return slices.Contains(have, c) })
}
