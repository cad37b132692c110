package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pid of another PID namespace means another process here.
func TestAPurgeSignalsOnlyTheLockHolder(t *testing.T) {
	dir := t.TempDir()
	held, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	defer func(d time.Duration) { holderPatience = d }(holderPatience)
	holderPatience = 0
	bystander := exec.Command("sleep", "600")
	bystander.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := bystander.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	if err := os.WriteFile(filepath.Join(dir, lockFile), []byte(strconv.Itoa(bystander.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stopHolder(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "cannot be seen from here") {
		t.Errorf("error %v", err)
	}
}

// The pid of a process that ends is gone a moment before its lock.
func TestAPurgeWaitsForAProcessThatEndsByItself(t *testing.T) {
	dir := t.TempDir()
	held, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, lockFile), []byte("999999999"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer func(d time.Duration) { holderPatience = d }(holderPatience)
	holderPatience = time.Minute
	time.AfterFunc(50*time.Millisecond, func() { _ = held.Close() })
	if err := stopHolder(t.Context(), dir); err != nil {
		t.Error(err)
	}
}
