// Package nettest runs tests that touch the network in network namespaces of their own, never in
// the machine's.
//
// Main starts the whole test binary again inside a new namespace. A single thread's namespace would
// not suffice, because goroutines move between threads. New makes further namespaces for pods and
// neighbours, and In runs a function inside one.
package nettest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const inside = "KNARR_NETTEST_INSIDE"

// Main is for TestMain: it runs the tests in a new network namespace with the loopback up. Without
// root, Need skips the tests that need one.
func Main(m *testing.M) {
	fuzzing := slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz=") })
	// The fuzzing engine starts processes itself.
	if os.Getenv(inside) != "" || os.Geteuid() != 0 || fuzzing {
		if os.Getenv(inside) != "" {
			if lo, err := netlink.LinkByName("lo"); err == nil {
				_ = netlink.LinkSetUp(lo)
			}
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the death signal is tied to this thread
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			fmt.Fprintln(os.Stderr, "nettest: no network namespace could be made; network tests are skipped:", err)
			os.Exit(m.Run())
		}
		os.Exit(max(cmd.ProcessState.ExitCode(), 1))
	}
	os.Exit(0)
}

// Need skips the test unless it runs in a namespace that Main made.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Skip("needs root, for a network namespace of its own")
	}
}

// NS is one network namespace. Path is valid until the test ends.
type NS struct {
	Handle netns.NsHandle
	Path   string
}

// New makes a namespace whose only link is a loopback that is down, as a container runtime does.
func New(t testing.TB) NS {
	t.Helper()
	Need(t)
	type result struct {
		h   netns.NsHandle
		err error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with this goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{err: err}
			return
		}
		h, err := netns.GetFromThread(os.Getpid(), unix.Gettid())
		made <- result{h, err}
	}()
	r := <-made
	if r.err != nil {
		t.Fatalf("network namespace: %v", r.err)
	}
	t.Cleanup(func() { r.h.Close() })
	return NS{Handle: r.h, Path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(r.h))}
}

// In runs fn with its thread in the namespace. Goroutines that fn starts are outside.
func (n NS) In(t testing.TB, fn func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(n.Handle); err != nil {
			done <- err
			return
		}
		fn()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatalf("entering a network namespace: %v", err)
	}
}
