package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// space is a set of new namespaces, which exist until end is called.
type space struct {
	cmd   *exec.Cmd // unshare
	pid   int       // of a process inside, in this PID namespace
	kinds []string
}

// newSpace creates namespaces of these kinds (--net, --mount, --pid). If processes get a namespace,
// all of them end with it.
func newSpace(t *testing.T, kinds ...string) *space {
	t.Helper()
	s := &space{kinds: kinds}
	keeper := []string{"sleep", "infinity"}
	if slices.Contains(kinds, "--pid") {
		// This shell reaps orphaned processes, as init does. Its child ends with the namespace.
		keeper = []string{"bash", "-c", "while :; do sleep 1000 & wait; done"}
	}
	s.cmd = exec.Command("unshare", slices.Concat([]string{"--fork", "--kill-child"}, kinds, keeper)...)
	if err := startTied(s.cmd); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		child, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", s.cmd.Process.Pid))
		if pid, err := strconv.Atoi(strings.TrimSpace(string(child))); err == nil {
			s.pid = pid
			return s
		}
		if time.Now().After(deadline) {
			t.Fatal("unshare has started nothing")
		}
	}
}

// tied makes the thread that starts commands for startTied.
var tied = sync.OnceValue(func() chan func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

// startTied starts a command that the kernel kills when this process ends. The kernel ties the
// death signal to the thread that starts the command, and threads of tests in namespaces end early.
// So one thread that lives as long as the process starts all such commands.
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error, 1)
	tied() <- func() { result <- cmd.Start() }
	return <-result
}

func (s *space) end() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// signal signals a command that has its own process group. With a PID namespace, nsenter is only
// its parent.
func (s *space) signal(cmd *exec.Cmd, sig syscall.Signal) {
	pid := cmd.Process.Pid
	if slices.Contains(s.kinds, "--pid") {
		pid = -pid
	}
	_ = syscall.Kill(pid, sig)
}

// command returns a command that runs in the namespaces.
func (s *space) command(name string, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(s.pid)}
	for _, kind := range s.kinds {
		if kind != "--mount-proc" {
			enter = append(enter, kind)
		}
	}
	return exec.Command("nsenter", append(append(enter, "--", name), args...)...)
}

// ip runs the ip command in the namespaces.
func (s *space) ip(t *testing.T, args string) {
	t.Helper()
	if out, err := s.command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", args, err, out)
	}
}
