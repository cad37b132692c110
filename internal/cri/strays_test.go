package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// killedStart makes the test binary start a runtime in this data folder and kill itself before the
// record of containerd is written.
const killedStart = "KNARR_TEST_KILLED_START"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedStart); dir != "" {
		beforeRecord = func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); time.Sleep(time.Hour) }
		_, err := Start(context.Background(), Config{DataDir: dir})
		fmt.Fprintln(os.Stderr, "not killed:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestAStartThatWasKilledLeavesNoSecondContainerd(t *testing.T) {
	config := testConfig(t)
	for range 2 {
		command := exec.Command("/proc/self/exe", "-test.run=^$")
		command.Env = append(os.Environ(), killedStart+"="+config.DataDir)
		output, err := command.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the start was not killed: %v: %s", err, output)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	runtime, err := Start(ctx, config)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	defer runtime.Wait()
	defer cancel()
	left, err := strays(runtime.config, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0] != runtime.PID() {
		t.Errorf("containerds %v run, want only %d", left, runtime.PID())
	}
	if !answers(runtime.Socket, runtime.PID()) {
		t.Error("another process answers on the socket")
	}
}

func TestAnotherProcesssAnswerDoesNotCount(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if !answers(socket, os.Getpid()) {
		t.Error("this process does not answer")
	}
	if answers(socket, os.Getppid()) {
		t.Error("this process answers for its parent")
	}
}
