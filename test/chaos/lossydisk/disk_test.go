package lossydisk

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mounted mounts a disk in a folder of its own.
func mounted(t *testing.T) *Disk {
	t.Helper()
	if err := Supported(); err != nil {
		t.Skip("no FUSE: ", err)
	}
	d, err := Mount(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *Disk) path(name string) string { return filepath.Join(d.dir, name) }

func crash(t *testing.T, d *Disk, seed uint64) Losses {
	t.Helper()
	lost, err := d.Crash(seed)
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes a file and, if sync is set, syncs it.
func write(t *testing.T, path, text string, sync bool) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	if sync {
		must(t, f.Sync())
	}
	must(t, f.Close())
}

func syncDir(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func TestADiskIsAFileSystem(t *testing.T) {
	d := mounted(t)
	must(t, os.MkdirAll(d.path("a/b"), 0o700))
	write(t, d.path("a/b/f"), "hello", false)
	must(t, os.Rename(d.path("a/b/f"), d.path("a/g")))
	must(t, os.Link(d.path("a/g"), d.path("linked")))
	must(t, os.Symlink("a/g", d.path("symbolic")))
	must(t, os.Chmod(d.path("a/g"), 0o640))
	for _, name := range []string{"a/g", "linked", "symbolic"} {
		if text := read(t, d.path(name)); text != "hello" {
			t.Errorf("%s contains %q", name, text)
		}
	}
	info, err := os.Stat(d.path("a/g"))
	must(t, err)
	if info.Mode().Perm() != 0o640 || info.Size() != 5 || info.Sys().(*syscall.Stat_t).Nlink != 2 {
		t.Errorf("a/g is %v with %d bytes", info.Mode(), info.Size())
	}
	if err := os.Remove(d.path("a")); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("the removal of a folder with content: %v", err)
	}
	must(t, os.Remove(d.path("a/b")))
	f, err := os.OpenFile(d.path("a/g"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString(" world")
	must(t, err)
	must(t, f.Truncate(8))
	must(t, f.Close())
	if text := read(t, d.path("linked")); text != "hello wo" {
		t.Errorf("after an append and a truncation: %q", text)
	}
	var names []string
	must(t, filepath.WalkDir(d.dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path[len(d.dir):])
		return err
	}))
	if want := []string{"", "/a", "/a/g", "/linked", "/symbolic"}; !slices.Equal(names, want) {
		t.Errorf("the names are %q, expected %q", names, want)
	}
}

func TestSyncedFilesAndNamesSurvive(t *testing.T) {
	d := mounted(t)
	must(t, os.Mkdir(d.path("kept"), 0o755))
	write(t, d.path("kept/f"), "synced", true)
	syncDir(t, d.path("kept"))
	syncDir(t, d.dir)
	for seed := range uint64(10) {
		write(t, d.path("kept/g"), "unsynced", false)
		f, err := os.OpenFile(d.path("kept/f"), os.O_RDONLY, 0)
		must(t, err)
		must(t, f.Close())
		crash(t, d, seed)
		if text := read(t, d.path("kept/f")); text != "synced" {
			t.Fatalf("after crash %d: %q", seed, text)
		}
	}
}

func TestTheSyncOfAFileDoesNotSyncItsName(t *testing.T) {
	d := mounted(t)
	gone, kept := 0, 0
	for seed := range uint64(20) {
		write(t, d.path("f"), "synced", true)
		crash(t, d, seed)
		if _, err := os.Stat(d.path("f")); err != nil {
			gone++
			continue
		}
		kept++
		if text := read(t, d.path("f")); text != "synced" {
			t.Fatalf("after crash %d: %q", seed, text)
		}
		must(t, os.Remove(d.path("f")))
		syncDir(t, d.dir)
	}
	if gone == 0 || kept == 0 {
		t.Errorf("the name was lost %d times and kept %d times", gone, kept)
	}
}

// The usual way to replace a file: readers see the old or the new one, also after a crash.
func TestARenameIsAtomic(t *testing.T) {
	d := mounted(t)
	write(t, d.path("f"), "old", true)
	syncDir(t, d.dir)
	for seed := range uint64(20) {
		write(t, d.path("f.tmp"), "new", true)
		must(t, os.Rename(d.path("f.tmp"), d.path("f")))
		crash(t, d, seed)
		if text := read(t, d.path("f")); text != "old" && text != "new" {
			t.Fatalf("after crash %d: %q", seed, text)
		}
		_ = os.Remove(d.path("f.tmp"))
	}
}

func TestFailedSyncs(t *testing.T) {
	d := mounted(t)
	write(t, d.path("f"), "synced", true)
	syncDir(t, d.dir)
	f, err := os.OpenFile(d.path("f"), os.O_WRONLY, 0)
	must(t, err)
	d.FailSyncs(1, syscall.EIO)
	_, err = f.WriteAt([]byte("broken"), 0)
	must(t, err)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the failing sync: %v", err)
	}
	must(t, f.Sync())
	d.FailSyncs(-1, syscall.EIO)
	for range 3 {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EIO) {
			t.Errorf("a sync of a disk that fails for ever: %v", err)
		}
	}
	d.FailSyncs(0, 0)
	must(t, f.Sync())
	must(t, f.Close())
	if n := d.Syncs(); n < 6 {
		t.Errorf("%d syncs were counted", n)
	}
}

func TestALyingDiskLosesWhatWasSynced(t *testing.T) {
	d := mounted(t)
	d.Lie(true)
	lost := 0
	for seed := range uint64(10) {
		write(t, d.path("f"), "synced", true)
		syncDir(t, d.dir)
		crash(t, d, seed)
		if data, err := os.ReadFile(d.path("f")); err != nil || string(data) != "synced" {
			lost++
		}
	}
	if lost == 0 {
		t.Error("no crash lost anything")
	}
}

func TestAFullDisk(t *testing.T) {
	d := mounted(t)
	f, err := os.Create(d.path("f"))
	must(t, err)
	d.LeaveFree(4 * pageSize)
	if _, err = f.Write(filled('x', 8*pageSize)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write beyond the end of the disk: %v", err)
	}
	must(t, f.Truncate(0))
	must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 3*pageSize))
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 8*pageSize); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("an allocation beyond the end of the disk: %v", err)
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(d.dir, &st))
	if st.Bavail != 1 {
		t.Errorf("%d pages are free, expected 1", st.Bavail)
	}
	other, err := os.Create(d.path("other"))
	must(t, err)
	if _, err = other.Write(filled('x', 2*pageSize)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write into allocated space of another file: %v", err)
	}
	_, err = f.WriteAt(filled('x', 3*pageSize), 0)
	must(t, err)
	must(t, f.Close())
	must(t, other.Close())
	must(t, os.Remove(d.path("f")))
	d.mu.Lock()
	used := d.used
	d.mu.Unlock()
	if used != pageSize && used != 0 {
		t.Errorf("%d bytes are in use after the removal", used)
	}
	d.LeaveFree(-1)
	must(t, unix.Statfs(d.dir, &st))
	if st.Bavail < 1<<20 {
		t.Errorf("%d pages are free on a large disk", st.Bavail)
	}
}

// A file that a process keeps open over a crash is of the old mount.
func TestACrashEndsOpenFiles(t *testing.T) {
	d := mounted(t)
	f, err := os.Create(d.path("f"))
	must(t, err)
	defer f.Close()
	crash(t, d, 1)
	if _, err := f.Write([]byte("x")); err == nil {
		t.Error("a write to a file of before the crash succeeded")
	}
	if err := f.Sync(); err == nil {
		t.Error("a sync of a file of before the crash succeeded")
	}
	write(t, d.path("g"), "new", false)
	if text := read(t, d.path("g")); !bytes.Equal([]byte(text), []byte("new")) {
		t.Errorf("after the crash: %q", text)
	}
}
