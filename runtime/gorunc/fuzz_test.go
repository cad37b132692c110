//go:build inprocess

package runc

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzBundle reads bundles that no containerd wrote, up to the point where a container would be
// made. A path that is accepted is absolute.
func FuzzBundle(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"root":{"path":"rootfs"}}`,
		`{"root":{"path":"../.."},"mounts":[{"destination":"/a","source":"files","options":["rbind"]},{"type":"bind"},{}],"linux":{"cgroupsPath":"/x"}}`,
		`{"root":{},"process":{"args":["a"],"cwd":"/","user":{"uid":4294967295,"additionalGids":[1]},"rlimits":[{"type":"RLIMIT_NOFILE","soft":1}],
			"capabilities":{},"consoleSize":{"height":70000,"width":1},"scheduler":{},"ioPriority":{},"execCPUAffinity":{"initial":"0-99999"}}}`,
		`{"root":{"path":"/r"},"process":{},"linux":{"namespaces":[{"type":"pid"},{"type":"pid"}],"devices":[{}],"resources":{"devices":[{}],"memory":{},"cpu":{},"unified":{"a":"b"}},
			"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["x"],"args":[{}]}]},"uidMappings":[{}],"intelRdt":{},"timeOffsets":{"boottime":{}}}}`,
		`{"root":{"path":"/r"},"hooks":{"prestart":[{}]},"linux":{"netDevices":{"eth0":{}},"rootfsPropagation":"shared","maskedPaths":[""],"sysctl":{"a":"b"}}}`,
	} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, config string) {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		spec, err := readSpec(dir)
		if err != nil {
			return
		}
		if !filepath.IsAbs(spec.Root.Path) {
			t.Errorf("root %q", spec.Root.Path)
		}
		for _, mount := range spec.Mounts {
			if isBind(mount) && !filepath.IsAbs(mount.Source) {
				t.Errorf("mount %q", mount.Source)
			}
		}
		// Both only return errors or values. They make nothing on the machine.
		_, _ = newProcess(spec.Process)
		_, _ = newConfig("fuzz", dir, spec, &CreateOpts{})
	})
}
