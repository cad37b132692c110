// Command containerd-shim-runc-v2 is the parent of a pod's containers. Its services are the
// packages of containerd's shim of that name. It differs in four points:
//
//   - It runs runc's work in its own process (../gorunc).
//   - Starting a shim takes one program start instead of two: the process forks before Go starts,
//     and the second half becomes the shim (detach.c).
//   - Containers write their output into containerd's pipes themselves (tasks.go).
//   - A shim without work sleeps, and then has hardly any memory of its own (sleep.go).
//
// See docs/adr/0015-runc-inside-the-shim.md and docs/adr/0048-sleeping-shims.md.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/pkg/shim"
)

const name = "io.containerd.runc.v2"

// libcontainer ends threads that have entered a container's mount namespace. It cannot end the
// process's first thread, which /proc/self refers to. So init reserves the first thread for main.
func init() { runtime.LockOSThread() }

func main() {
	if err := run(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v", name, err)
		os.Exit(1)
	}
}

func run(action string) error {
	switch action {
	case "start":
		fresh, err := start(os.Args[1:], os.Stdin, os.Stdout)
		if err != nil || fresh == nil { // nil: another process serves this pod
			return err
		}
		fresh.Awake = leastAwake()
		return serve(fresh, false)
	case "wake", "end":
		kept, err := restore()
		if err != nil {
			return err
		}
		kept.Awake = nextAwake(kept.Awake, leastAwake(), time.Since(kept.SleepsFrom))
		return serve(kept, true)
	}
	shim.RunShim(context.Background(), manager.NewShimManager(name))
	return nil
}
