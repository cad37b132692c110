package cri

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLeftoversOfAKilledContainerdAreRemoved(t *testing.T) {
	config := testConfig(t)
	ctx, stop := context.WithCancel(t.Context())
	runtime, err := Start(ctx, config)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	defer runtime.Wait()
	defer stop()
	pod := testPod(t)
	defer removeCgroups(t, pod.Linux.CgroupParent)
	sandbox, err := runtime.Runtime.RunPodSandbox(ctx, pod, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stopPod(t.Context(), runtime, sandbox); err != nil {
			t.Error(err)
		}
	}()

	// What a containerd leaves that is killed between the steps of a sandbox's start.
	lost := filepath.Join(runtime.config.state(), "io.containerd.test", "netns", "cni-lost")
	if err := os.MkdirAll(filepath.Dir(lost), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lost, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("unshare", "--net", "mount", "--bind", "/proc/self/ns/net", lost).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	t.Cleanup(func() { _ = unix.Unmount(lost, unix.MNT_DETACH) })
	shim := lostProgram(t, runtime)

	if err := unix.Kill(runtime.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-shim
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Lstat(lost); os.IsNotExist(err) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the network namespace is still there after a minute")
		}
	}
	answer, err := runtime.Runtime.PodSandboxStatus(ctx, sandbox, false)
	if err != nil || answer.Status.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the sandbox that containerd knows is %v, %v", answer.GetStatus().GetState(), err)
	}
}

// lostProgram starts a process that looks like a shim which no sandbox has. The channel is closed
// when the process ends.
func lostProgram(t *testing.T, runtime *Runtime) <-chan struct{} {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(runtime.programs, "pause"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(runtime.config.binDir(), "test", "containerd-shim-runc-v2")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(path, "-namespace", "k8s.io", "-id", "lost")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }()
	t.Cleanup(func() { _ = command.Process.Kill(); <-ended })
	return ended
}
