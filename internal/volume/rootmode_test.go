package volume

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAMountedTmpfsHasItsGroupAtOnce: a killed node agent finds the mount after its restart, and
// takes it for complete.
func TestAMountedTmpfsHasItsGroupAtOnce(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	group := int64(4711)
	for name, c := range map[string]struct {
		group *int64
		gid   uint32
		mode  uint32
	}{
		"with an fsGroup": {&group, 4711, 0o3777},
		"without":         {nil, 0, 0o1777},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := mountTmpfs(dir, 1<<20, c.group); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			var stat unix.Stat_t
			if err := unix.Stat(dir, &stat); err != nil {
				t.Fatal(err)
			}
			if stat.Gid != c.gid || stat.Mode&0o7777 != c.mode {
				t.Errorf("the root folder has group %d and mode %o, want %d and %o", stat.Gid, stat.Mode&0o7777, c.gid, c.mode)
			}
		})
	}
}
