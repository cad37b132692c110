package run

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// crashes is set for a process of this test that crashes on purpose.
const crashes = "KNARR_TEST_CRASHES"

func TestTheNextStartExplainsACrash(t *testing.T) {
	if dir := os.Getenv(crashes); dir != "" {
		recordCrashes(dir, slog.New(slog.DiscardHandler))
		debug.SetTraceback("all")
		crashInAMap(t, filepath.Join(dir, "mapped"))
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestTheNextStartExplainsACrash$")
	child.Env = append(os.Environ(), crashes+"="+dir)
	if out, err := child.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("SIGBUS")) {
		t.Fatalf("the process did not crash: %v\n%s", err, out)
	}
	var log bytes.Buffer
	done := recordCrashes(dir, slog.New(slog.NewTextHandler(&log, nil)))
	for _, want := range []string{"the last run of knarr crashed", "signal SIGBUS", `in="package run"`, lastCrashFile} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
	if info, err := os.Stat(filepath.Join(dir, lastCrashFile)); err != nil || info.Size() == 0 {
		t.Errorf("the record is not kept: %v", err)
	}
	done()
	if _, err := os.Stat(filepath.Join(dir, crashFile)); !os.IsNotExist(err) {
		t.Errorf("an orderly end leaves a record: %v", err)
	}
	log.Reset()
	recordCrashes(dir, slog.New(slog.NewTextHandler(&log, nil)))()
	if log.Len() > 0 {
		t.Errorf("a start after an orderly end says %s", log.String())
	}
}

// crashInAMap reads beyond the end of a mapped file, as the database does when its file is cut off.
func crashInAMap(t *testing.T, path string) byte {
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	return mapped[4096]
}

func TestCausesOfCrashes(t *testing.T) {
	for name, tc := range map[string]struct {
		record, cause, part string
	}{
		"a page of the database": {
			"panic: page 5 already freed\n\ngoroutine 88 [running]:\ngo.etcd.io/bbolt/internal/freelist.(*shared).Free(0xc0, 0x5)\n\t/x/shared.go:1\n\ngoroutine 1 [select]:\ngithub.com/knarr-project/knarr/internal/run.Up()\n",
			"panic: page 5 already freed", storePart,
		},
		"a fault in the database": {
			"unexpected fault address 0x7f00\nfatal error: fault\n[signal SIGBUS: bus error code=0x2 addr=0x7f00 pc=0x1]\n\ngoroutine 88 gp=0x1 m=3 mp=0x2 [running]:\nruntime.throw({0x1, 0x5})\n\t/go/panic.go:1\nruntime.sigpanic()\n\t/go/signal.go:1\ngo.etcd.io/bbolt.(*Cursor).search(0x1)\n\t/x.go:1\n",
			"unexpected fault address 0x7f00; fatal error: fault; [signal SIGBUS: bus error code=0x2 addr=0x7f00 pc=0x1]", storePart,
		},
		"a controller": {
			"panic: assignment to entry in nil map\n\ngoroutine 3 [running]:\ngithub.com/knarr-project/knarr/internal/controllers/node.(*account).reconcile(0x1)\n\t/x.go:1\n",
			"panic: assignment to entry in nil map", "package controllers/node",
		},
		"no stack": {"fatal error: out of memory\n", "fatal error: out of memory", unknownPart},
	} {
		if got := parseCrash(tc.record); got.cause != tc.cause || got.part != tc.part {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzParseCrash(f *testing.F) {
	f.Add("panic: x\n\ngoroutine 1 [running]:\ngo.etcd.io/bbolt.f(\n")
	f.Add("goroutine ")
	f.Fuzz(func(t *testing.T, record string) {
		if c := parseCrash(record); len(c.cause) > 510 || len(c.part) > 520 || c.part == "" {
			t.Errorf("%+v", c)
		}
	})
}
