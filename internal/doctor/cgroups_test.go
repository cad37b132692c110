package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCheckingCgroupsLeavesThemUnchanged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root := fmt.Sprintf("/knarr-doctor-%d", os.Getpid())
	before := ownCgroups(t)
	f := machineCgroups().check(root)
	if f.Level == Broken && !strings.Contains(f.Found, "not mounted") {
		t.Skipf("this machine has no usable cgroups: %+v", f)
	}
	if f.Level != Fine && f.Level != Degraded {
		t.Errorf("found %+v", f)
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*" + root)
	if _, err := os.Stat("/sys/fs/cgroup" + root); err == nil || len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
	if after := ownCgroups(t); after != before {
		t.Errorf("this process was in\n%sand is now in\n%s", before, after)
	}
}

// ownCgroups returns the cgroups of all threads of this process.
func ownCgroups(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && !slices.Contains(all, string(data)) {
			all = append(all, string(data))
		}
	}
	return strings.Join(all, "\n")
}

func TestAMachineWithoutCgroupsIsBroken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const inside = "KNARR_TEST_IN_MOUNT_NAMESPACE"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("in a mount namespace: %v\n%s", err, out)
		}
		return
	}
	// Read-only first: this is what an unprivileged container sees.
	mounts, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append(mounts, "/sys/fs/cgroup") {
		_ = unix.Mount("", m, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	if f := machineCgroups().check("/knarr-doctor"); f.Level != Broken || !strings.Contains(f.Remedy, "rw") {
		t.Errorf("read-only cgroups: %+v", f)
	}
	if err := unix.Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if f := machineCgroups().check("/knarr-doctor"); f.Level != Broken || !strings.Contains(f.Found, "no controller") || !strings.Contains(f.Remedy, "cgroup2") {
		t.Errorf("no cgroups: %+v", f)
	}
}

// fakeTree is a simulated tree of cgroups: folders with the files that the kernel would make.
type fakeTree struct {
	t *testing.T
	cgroupTree
	v2      bool
	entered []string
}

func newFakeTree(t *testing.T, v2 bool) *fakeTree {
	p := &fakeTree{t: t, v2: v2}
	p.cgroupTree = cgroupTree{dir: t.TempDir(), fileSystem: func(string) int64 {
		if v2 {
			return unix.CGROUP2_SUPER_MAGIC
		}
		return unix.CGROUP_SUPER_MAGIC
	}, make: p.makeCgroup, remove: os.RemoveAll}
	enter := func(dir string) error { p.entered = append(p.entered, dir); return nil }
	p.enterV1, p.enterV2 = enter, enter
	return p
}

func (p *fakeTree) write(path, text string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// makeCgroup makes a folder. In version 2 it gets the controllers that its parent has enabled.
func (p *fakeTree) makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if p.v2 {
		enabled, _ := os.ReadFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"))
		p.write(filepath.Join(dir, "cgroup.controllers"), string(enabled))
		p.write(filepath.Join(dir, "cgroup.subtree_control"), string(enabled))
	}
	return nil
}

func TestCgroupVersion2(t *testing.T) {
	for name, c := range map[string]struct {
		controllers, enabled string
		level                Level
		found, remedy        string
	}{
		"with all controllers delegated it is fine":              {"cpuset cpu io memory pids", "cpuset cpu io memory pids", Fine, "version 2", ""},
		"without cpuset it works":                                {"cpu io memory pids", "cpu memory pids", Degraded, "without cpuset", "enable"},
		"without memory in the kernel it is broken":              {"cpu pids", "cpu pids", Broken, "without memory", "cgroup_enable=memory"},
		"in a container without delegation it is broken":         {"cpuset cpu memory pids", "", Broken, "controllers cpu, memory, pids are not delegated", "--cgroupns=host"},
		"with one controller that is not delegated it is broken": {"cpuset cpu memory pids", "cpu pids", Broken, "controllers memory are not delegated", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakeTree(t, true)
			p.write(filepath.Join(p.dir, "cgroup.controllers"), c.controllers)
			p.write(filepath.Join(p.dir, "cgroup.subtree_control"), c.enabled)
			f := p.check("/knarr")
			if f.Level != c.level || !strings.Contains(f.Found, c.found) || !strings.Contains(f.Remedy, c.remedy) {
				t.Errorf("found %+v", f)
			}
			if c.level != Broken && len(p.entered) != 1 {
				t.Errorf("no process was moved: %v", p.entered)
			}
			if _, err := os.Stat(filepath.Join(p.dir, "knarr")); err == nil {
				t.Error("the cgroup is left")
			}
		})
	}
}

func TestProcessesInTheTopCgroupOfAContainerAreNamedAsTheCause(t *testing.T) {
	err := notDelegated{[]string{"memory"}, fmt.Errorf("/sys/fs/cgroup/cgroup.subtree_control: %w", unix.EBUSY)}
	if r := err.remedy("/sys/fs/cgroup"); !strings.Contains(r, "/sys/fs/cgroup/init") {
		t.Error(r)
	}
}

func TestCgroupVersion1(t *testing.T) {
	for name, c := range map[string]struct {
		mounts []string
		level  Level
		found  string
	}{
		"with all controllers it is fine":     {[]string{"cpu,cpuacct", "memory", "devices", "cpuset", "pids", "freezer"}, Fine, "version 1"},
		"without pids and cpuset it works":    {[]string{"cpu", "memory", "devices", "freezer"}, Degraded, "without cpuset, pids"},
		"without memory it is broken":         {[]string{"cpu", "devices"}, Broken, "without memory"},
		"without any controller it is broken": {nil, Broken, "no controller is mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakeTree(t, false)
			for _, m := range c.mounts {
				p.write(filepath.Join(p.dir, m, "tasks"), "")
			}
			if f := p.check("/knarr"); f.Level != c.level || !strings.Contains(f.Found, c.found) {
				t.Errorf("found %+v", f)
			}
			if c.level != Broken && len(p.entered) != len(c.mounts) {
				t.Errorf("a process was moved into %v", p.entered)
			}
		})
	}
}

func TestAProcessIsStartedInACgroupOfVersion2(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if fileSystem(top) != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		tree := machineCgroups()
		tree.dir = top
		err := tree.inChild(top, fmt.Sprintf("/knarr-doctor-%d", os.Getpid()), func(dir string) error {
			if err := enterV2(dir); err != nil {
				return err
			}
			if err := enterV2(filepath.Join(dir, "cgroup.procs")); err == nil {
				t.Error("a file outside of cgroups was entered")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return
	}
	t.Skip("no cgroup version 2 is mounted")
}
