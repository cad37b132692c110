//go:build inprocess

package runc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func bundle(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPathsOfABundleAreRelativeToIt(t *testing.T) {
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

// label is the bundle that hooks are told.
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

func TestABundleThatCannotBeRead(t *testing.T) {
	for name, config := range map[string]string{"no JSON": `{`, "no root": `{}`} {
		if _, err := readSpec(bundle(t, config)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := readSpec(t.TempDir()); err == nil {
		t.Error("no config.json: no error")
	}
}

func TestProcessesThatCannotRun(t *testing.T) {
	for name, p := range map[string]*specs.Process{
		"none":                      nil,
		"without a program":         {Cwd: "/"},
		"in a relative folder":      {Cwd: "tmp", Args: []string{"sh"}},
		"with a limit of no kernel": {Cwd: "/", Args: []string{"sh"}, Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_LUCK"}}},
	} {
		if _, err := newProcess(p); err == nil {
			t.Errorf("a process %s: no error", name)
		}
	}
}

func TestAProcessKeepsWhatItsSpecSays(t *testing.T) {
	p, err := newProcess(&specs.Process{
		Cwd: "/", Args: []string{"sh"}, User: specs.User{UID: 1, GID: 2, AdditionalGids: []uint32{3}}, ConsoleSize: &specs.Box{Width: 80, Height: 25},
		Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_CHOWN"}}, NoNewPrivileges: true,
		Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 4, Hard: 5}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.UID != 1 || p.GID != 2 || len(p.AdditionalGroups) != 1 || p.AdditionalGroups[0] != 3 || p.ConsoleWidth != 80 || p.ConsoleHeight != 25 ||
		p.Capabilities.Bounding[0] != "CAP_CHOWN" || !*p.NoNewPrivileges || p.Rlimits[0].Soft != 4 || p.Rlimits[0].Hard != 5 {
		t.Errorf("the process is %+v", p)
	}
}

func TestAnErrorIsTheLogsLastLine(t *testing.T) {
	r := &Runc{Root: t.TempDir(), Log: filepath.Join(t.TempDir(), "log.json")}
	if err := r.Start(t.Context(), "nobody"); err == nil {
		t.Fatal("a container that does not exist has started")
	}
	if content, err := os.ReadFile(r.Log); err != nil || len(content) == 0 {
		t.Errorf("the log is %q, %v", content, err)
	}
	if err := r.Delete(t.Context(), "nobody", &DeleteOpts{Force: true}); err != nil {
		t.Errorf("deleting by force what does not exist: %v", err)
	}
}
