//go:build inprocess

package runc

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"
)

func bundle(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRelativePathsOfABundleBecomeAbsolute(t *testing.T) {
	dir := bundle(t, `{"root":{"path":"rootfs"},"mounts":[
		{"destination":"/a","source":"files","options":["rbind"]},
		{"destination":"/b","source":"/etc","type":"bind"},
		{"destination":"/c","source":"tmpfs","type":"tmpfs"}]}`)
	spec, err := readSpec(dir)
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]string{
		"the root":                    {spec.Root.Path, filepath.Join(dir, "rootfs")},
		"a relative bind mount":       {spec.Mounts[0].Source, filepath.Join(dir, "files")},
		"an absolute bind mount":      {spec.Mounts[1].Source, "/etc"},
		"a mount that is of no file":  {spec.Mounts[2].Source, "tmpfs"},
		"the bundle of the container": {label(t, dir, spec), dir},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %q, want %q", what, pair[0], pair[1])
		}
	}
}

// label returns the bundle that hooks get.
func label(t *testing.T, dir string, spec *specs.Spec) string {
	t.Helper()
	spec.Mounts, spec.Linux = nil, &specs.Linux{CgroupsPath: "/knarr-test/x"}
	config, err := newConfig("x", dir, spec, &CreateOpts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range config.Labels {
		if len(l) > 7 && l[:7] == "bundle=" {
			return l[7:]
		}
	}
	return ""
}

func TestUnreadableBundlesAreErrors(t *testing.T) {
	for name, config := range map[string]string{"no JSON": `{`, "no root": `{}`} {
		if _, err := readSpec(bundle(t, config)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := readSpec(t.TempDir()); err == nil {
		t.Error("no config.json: no error")
	}
}

func TestABindMountIsKnownByItsTypeOrItsOptions(t *testing.T) {
	dir := bundle(t, `{"root":{"path":"/abs"},"mounts":[
		{"destination":"/a","source":"x","type":"none","options":["ro","bind"]},
		{"destination":"/b","source":"x","type":"none","options":["ro"]},
		{"destination":"/c","source":"../x","type":"bind"},
		{"destination":"/d","type":"bind"},
		{"destination":"/e"}]}`)
	spec, err := readSpec(dir)
	if err != nil {
		t.Fatal(err)
	}
	if spec.Root.Path != "/abs" {
		t.Errorf("an absolute root became %q", spec.Root.Path)
	}
	for i, want := range []string{filepath.Join(dir, "x"), "x", filepath.Join(filepath.Dir(dir), "x"), dir, ""} {
		if got := spec.Mounts[i].Source; got != want {
			t.Errorf("the source of %s is %q, want %q", spec.Mounts[i].Destination, got, want)
		}
	}
}

func TestTheConfigurationHasTheOptionsOfTheCall(t *testing.T) {
	for _, on := range []bool{false, true} {
		spec := &specs.Spec{Root: &specs.Root{Path: "/rootfs"}, Linux: &specs.Linux{CgroupsPath: "/knarr-test/x"}, Annotations: map[string]string{"k": "bundle=v"}}
		config, err := newConfig("x", "/the/bundle", spec, &CreateOpts{NoPivot: on, NoNewKeyring: on})
		if err != nil {
			t.Fatal(err)
		}
		if config.NoPivotRoot != on || config.NoNewKeyring != on || config.Rootfs != "/rootfs" || config.RootlessEUID != (os.Geteuid() != 0) {
			t.Errorf("the configuration is %+v", config)
		}
		if !slices.Contains(config.Labels, "k=bundle=v") || !slices.Contains(config.Labels, "bundle=/the/bundle") {
			t.Errorf("the labels are %q", config.Labels)
		}
	}
	if _, err := newConfig("x", "/b", &specs.Spec{}, &CreateOpts{}); err == nil {
		t.Error("a specification without a root: no error")
	}
}

func TestAProcessThatCannotRunIsRefusedInRuncsWords(t *testing.T) {
	sh := []string{"sh"}
	for name, tc := range map[string]struct {
		process *specs.Process
		want    string
	}{
		"none":                              {nil, "process property must not be empty"},
		"without a program":                 {&specs.Process{Cwd: "/"}, "args must not be empty"},
		"in a relative folder":              {&specs.Process{Cwd: "tmp", Args: sh}, "Cwd must be an absolute path"},
		"in no folder and without program":  {&specs.Process{}, "Cwd must be an absolute path"},
		"with an unknown limit":             {&specs.Process{Cwd: "/", Args: sh, Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_LUCK"}}}, "wrong rlimit value: RLIMIT_LUCK"},
		"with a limit without its prefix":   {&specs.Process{Cwd: "/", Args: sh, Rlimits: []specs.POSIXRlimit{{Type: "NOFILE"}}}, "wrong rlimit value: NOFILE"},
		"with a limit in small letters":     {&specs.Process{Cwd: "/", Args: sh, Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_nofile"}}}, "wrong rlimit value: RLIMIT_nofile"},
		"with a limit without a name":       {&specs.Process{Cwd: "/", Args: sh, Rlimits: []specs.POSIXRlimit{{}}}, "wrong rlimit value: "},
		"with CPUs that cannot be read":     {&specs.Process{Cwd: "/", Args: sh, ExecCPUAffinity: &specs.CPUAffinity{Initial: "x"}}, `bad CPUAffinity.Initial: strconv.ParseUint: parsing "x": invalid syntax`},
		"with such CPUs, before its limits": {&specs.Process{Cwd: "/", Args: sh, ExecCPUAffinity: &specs.CPUAffinity{Initial: "x"}, Rlimits: []specs.POSIXRlimit{{}}}, `bad CPUAffinity.Initial: strconv.ParseUint: parsing "x": invalid syntax`},
	} {
		if _, err := newProcess(tc.process); err == nil || err.Error() != tc.want {
			t.Errorf("a process %s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestASELinuxLabelIsRefusedWithoutSELinux(t *testing.T) {
	if selinux.GetEnabled() {
		t.Skip("SELinux is enabled here")
	}
	_, err := newProcess(&specs.Process{Cwd: "/", Args: []string{"sh"}, SelinuxLabel: "a:b:c:d"})
	if want := "selinux label is specified in config, but selinux is disabled or not supported"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestAProcessHasAllOfItsSpecification(t *testing.T) {
	no, yes := false, true
	sets := func(name string) []string { return []string{"CAP_" + name} }
	for name, tc := range map[string]struct {
		spec specs.Process
		want libcontainer.Process
	}{
		"the least": {
			specs.Process{Cwd: "/", Args: []string{"sh"}},
			libcontainer.Process{Cwd: "/", Args: []string{"sh"}, NoNewPrivileges: &no, LogLevel: "4"},
		},
		"everything": {
			specs.Process{
				Cwd: "/w", Args: []string{"sh", "-c"}, Env: []string{"A=b"}, NoNewPrivileges: true, ApparmorProfile: "p", Terminal: true,
				User:        specs.User{UID: 1, GID: 4294967295, AdditionalGids: []uint32{3, 4}},
				ConsoleSize: &specs.Box{Width: 80, Height: 25},
				Capabilities: &specs.LinuxCapabilities{
					Bounding: sets("B"), Effective: sets("E"), Inheritable: sets("I"), Permitted: sets("P"), Ambient: sets("A"),
				},
				Rlimits:    []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 4, Hard: 5}, {Type: "RLIMIT_CORE", Hard: 1 << 63}},
				Scheduler:  &specs.Scheduler{Policy: specs.SchedBatch},
				IOPriority: &specs.LinuxIOPriority{Priority: 3},
			},
			libcontainer.Process{
				Cwd: "/w", Args: []string{"sh", "-c"}, Env: []string{"A=b"}, NoNewPrivileges: &yes, AppArmorProfile: "p", LogLevel: "4",
				UID: 1, GID: 4294967295, AdditionalGroups: []int{3, 4}, ConsoleWidth: 80, ConsoleHeight: 25,
				Capabilities: &configs.Capabilities{
					Bounding: sets("B"), Effective: sets("E"), Inheritable: sets("I"), Permitted: sets("P"), Ambient: sets("A"),
				},
				Rlimits:    []configs.Rlimit{{Type: unix.RLIMIT_NOFILE, Soft: 4, Hard: 5}, {Type: unix.RLIMIT_CORE, Hard: 1 << 63}},
				Scheduler:  &specs.Scheduler{Policy: specs.SchedBatch},
				IOPriority: &specs.LinuxIOPriority{Priority: 3},
			},
		},
		"an empty console": {
			specs.Process{Cwd: "/", Args: []string{"sh"}, ConsoleSize: &specs.Box{}, Capabilities: &specs.LinuxCapabilities{}},
			libcontainer.Process{Cwd: "/", Args: []string{"sh"}, NoNewPrivileges: &no, LogLevel: "4", Capabilities: &configs.Capabilities{}},
		},
	} {
		got, err := newProcess(&tc.spec)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, &tc.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, &tc.want)
		}
	}
}

func TestCPUsOfAProcessAreRead(t *testing.T) {
	p, err := newProcess(&specs.Process{Cwd: "/", Args: []string{"sh"}, ExecCPUAffinity: &specs.CPUAffinity{Initial: "0", Final: "0-1"}})
	if err != nil {
		t.Fatal(err)
	}
	if p.CPUAffinity == nil || p.CPUAffinity.Initial.Count() != 1 || p.CPUAffinity.Final.Count() != 2 {
		t.Errorf("the CPUs are %+v", p.CPUAffinity)
	}
}

func TestEachLimitOfTheSpecificationIsKnown(t *testing.T) {
	for name, number := range map[string]int{
		"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_DATA": unix.RLIMIT_DATA,
		"RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK,
		"RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE,
		"RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
		"RLIMIT_RTTIME": unix.RLIMIT_RTTIME, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
	} {
		p, err := newProcess(&specs.Process{Cwd: "/", Args: []string{"sh"}, Rlimits: []specs.POSIXRlimit{{Type: name}}})
		if err != nil || p.Rlimits[0].Type != number {
			t.Errorf("%s: %+v, %v; want %d", name, p, err, number)
		}
	}
}

func TestErrorsAreWrittenToTheLog(t *testing.T) {
	r := &Runc{Root: t.TempDir(), Log: filepath.Join(t.TempDir(), "log.json")}
	if err := r.Start(t.Context(), "missing"); err == nil {
		t.Fatal("a container that does not exist has started")
	}
	if content, err := os.ReadFile(r.Log); err != nil || len(content) == 0 {
		t.Errorf("the log is %q, %v", content, err)
	}
	if err := r.Delete(t.Context(), "missing", &DeleteOpts{Force: true}); err != nil {
		t.Errorf("deleting a missing container by force: %v", err)
	}
}
