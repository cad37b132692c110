package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/store"
)

// smallDisk is set in the child process of a test that needs a small file system: its folder.
const smallDisk = "KNARR_SMALL_DISK"

// onSmallDisk runs the test again in a process with a mount namespace, where a folder has a file
// system of its own. It returns the folder there, and "" in the parent.
func onSmallDisk(t *testing.T, kind string) string {
	t.Helper()
	if dir := os.Getenv(smallDisk); dir != "" {
		mountSmall(t, kind, dir)
		return dir
	}
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), smallDisk+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM):
		t.Skip("no mount namespace:", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	}
	t.Logf("%s", out)
	return ""
}

// mountSmall mounts a file system of 208 MiB.
func mountSmall(t *testing.T, kind, dir string) {
	t.Helper()
	const size = 208 << 20
	if kind == "tmpfs" {
		if err := unix.Mount("small", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
			t.Skip("cannot mount a tmpfs:", err)
		}
	} else {
		image := dir + ".img"
		if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"mkfs." + kind, "-q", image}, {"mount", "-o", "loop", image, dir}} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Skipf("%v: %v: %s", args, err, out)
			}
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// fillDisk writes a file until the disk has no space left.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for len(block) > 0 {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

func TestAFullDiskRefusesWritesUntilThereIsSpace(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			if dir := onSmallDisk(t, kind); dir != "" {
				fullDiskAndBack(t, dir)
			}
		})
	}
}

func fullDiskAndBack(t *testing.T, dir string) {
	data := filepath.Join(dir, "etcd")
	e, err := Open(t.Context(), Options{DataDir: data})
	if err != nil {
		t.Fatal(err)
	}
	// Writers go on all the time.
	ctx, stop := context.WithCancel(t.Context())
	var acked, refused atomic.Int64
	var reason atomic.Value
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			_, err := e.Commit(t.Context(), nil, store.Op{Key: fmt.Sprintf("/k/%06d", acked.Load()), Value: make([]byte, 8<<10)})
			switch {
			case err == nil:
				acked.Add(1)
			case errors.Is(err, store.ErrNoSpace):
				refused.Add(1)
				reason.Store(err.Error())
				time.Sleep(time.Millisecond)
			default:
				done <- err
				return
			}
		}
		done <- nil
	}()
	eventually(t, "no writes", func() error {
		if acked.Load() < 20 {
			return errors.New("few writes")
		}
		return nil
	})

	filler := filepath.Join(dir, "filler")
	fillDisk(t, filler)
	eventually(t, "writes to a full disk are not refused", func() error {
		if refused.Load() < 100 {
			return errors.New("few refusals")
		}
		return nil
	})
	time.Sleep(3 * batchInterval) // accepted writes reach the database
	text, _ := reason.Load().(string)
	t.Log("reason:", text)
	for _, part := range []string{data, "the disk of the store is full", "MiB free", "mounted on " + dir} {
		if !strings.Contains(text, part) {
			t.Errorf("the reason %q does not say %q", text, part)
		}
	}
	if err := e.Failure(); err != nil {
		t.Errorf("the engine has failed: %v", err)
	}
	if _, err := e.Range(t.Context(), "/k/", store.RangeOptions{Limit: 5}); err != nil {
		t.Errorf("a list on a full disk: %v", err)
	}
	if _, err := e.Commit(t.Context(), nil, store.Op{Key: "/k/000000", Delete: true}); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("a deletion on a full disk: %v", err)
	}

	before := acked.Load()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes do not go on", func() error {
		if acked.Load() < before+20 {
			return errors.New("few writes")
		}
		return nil
	})
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	e.Close()
	if e, err = Open(t.Context(), Options{DataDir: data}); err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r, err := e.Range(t.Context(), "/k/", store.RangeOptions{CountOnly: true})
	if err != nil || r.Count != acked.Load() {
		t.Errorf("%d keys of %d acknowledged: %v", r.Count, acked.Load(), err)
	}
}

// Without the engine's own check etcd meets the full disk. It must not end the process.
func TestAFatalErrorOfEtcdIsTheEnginesFailure(t *testing.T) {
	dir := onSmallDisk(t, "tmpfs")
	if dir == "" {
		return
	}
	e, err := Open(t.Context(), Options{DataDir: filepath.Join(dir, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	fillDisk(t, filepath.Join(dir, "filler"))
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = e.server.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "/k/%d", i), Value: make([]byte, 100<<10)})
		}
	}()
	defer stop()
	select {
	case <-e.Failed():
	case <-time.After(2 * time.Minute):
		t.Fatal("etcd writes to a full disk")
	}
	t.Log(e.Failure())
	if !errors.Is(e.Failure(), unix.ENOSPC) {
		t.Errorf("the cause is %v", e.Failure())
	}
	if _, _, err := e.Get(t.Context(), "/k/1", 0); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("get: %v", err)
	}
	if _, err := e.Commit(t.Context(), nil, store.Op{Key: "/k"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("commit: %v", err)
	}
	if err := e.Health(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("health: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestFindDevice(t *testing.T) {
	const table = `22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
90 22 8:17 / /var/lib/knarr rw - xfs /dev/sdb1 rw
91 22 8:17 /sub /mnt/my\040disk rw - xfs /dev/sdb1 rw
`
	for _, c := range []struct{ number, dir, want string }{
		{"259:2", "/var/lib/other", "/dev/nvme0n1p2 (ext4, mounted on /)"},
		{"8:17", "/var/lib/knarr/etcd", "/dev/sdb1 (xfs, mounted on /var/lib/knarr)"},
		{"8:17", "/mnt/my disk/etcd", "/dev/sdb1 (xfs, mounted on /mnt/my disk)"},
		{"1:1", "/", "an unknown device"},
	} {
		if got := findDevice(table, c.number, c.dir).String(); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.number, c.dir, got, c.want)
		}
	}
}
