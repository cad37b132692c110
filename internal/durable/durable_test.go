package durable

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestAFileIsReplacedAndNothingElseIsLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	for _, content := range []string{"one", "two, which is longer", ""} {
		if err := WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("the file holds %q, %v", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v %v", info.Mode(), err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestAFailedWriteKeepsTheOldContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	// A file cannot replace a folder.
	if err := os.MkdirAll(filepath.Join(path, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(string, []byte) error{"WriteFile": WriteFile, "Replace": Replace} {
		err := write(path, []byte("x"))
		if err == nil {
			t.Fatalf("%s: a folder was replaced by a file", name)
		}
		if strings.Contains(err.Error(), "already closed") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s contains more than the cause: %v", name, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// killedWriter makes the test binary write this file and kill itself before the rename.
const killedWriter = "KNARR_TEST_KILLED_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(killedWriter); path != "" {
		err := write(path, []byte("half"), func(*os.File, string) error {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Hour)
			return nil
		})
		fmt.Fprintln(os.Stderr, "not killed:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestTheNextWriteRemovesWhatAKilledWriterLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.Env = append(os.Environ(), killedWriter+"="+path)
		if err := cmd.Run(); err == nil {
			t.Fatal("the writer was not killed")
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	other := filepath.Join(dir, ".key-chain")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// A live writer's file stays.
	live, err := temporary(path)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if err := WriteFile(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{filepath.Base(other), filepath.Base(live.Name()), "key"}
	slices.Sort(want)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("the folder has %v, want %v; %v", names, want, err)
	}
}

func TestConcurrentWritersKeepTheirFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "busy")
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for range 100 {
				if err := Replace(path, []byte{byte('0' + i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
