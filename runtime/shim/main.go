// Command containerd-shim-runc-v2 is the parent of a pod's containers. Its services are the
// packages of containerd's shim of that name. It differs in two points. It runs runc's work in its
// own process (../gorunc). And starting a shim takes one program start instead of two: the process
// forks before Go starts, and the second half becomes the shim (detach.c).
//
// See docs/adr/0015-runc-inside-the-shim.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task/plugin"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"github.com/containerd/containerd/v2/plugins"
	runc "github.com/containerd/go-runc"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"golang.org/x/sys/unix"
)

const name = "io.containerd.runc.v2"

// libcontainer ends threads that have entered a container's mount namespace. It cannot end the
// process's first thread, which /proc/self refers to. So init reserves the first thread for main.
func init() { runtime.LockOSThread() }

func main() {
	if os.Args[len(os.Args)-1] == "start" {
		serving, err := start(os.Args[1:], os.Stdin, os.Stdout)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v", name, err)
			os.Exit(1)
		}
		if !serving {
			return // another process serves this pod
		}
	}
	// Without this, the garbage collector runs every 2 MB. A shim allocates briefly at a
	// container's start and end, and is idle in between.
	registry.Register(&plugin.Registration{Type: plugins.InternalPlugin, ID: "garbage", InitFn: func(*plugin.InitContext) (any, error) {
		debug.SetGCPercent(200) // containerd's shim has just set it to 40
		return struct{}{}, nil
	}})
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 4))
	// Containers' first processes inherit it, and they work sequentially.
	os.Setenv("GOMAXPROCS", "1")
	runc.Deleted = deleted
	go reap()
	shim.RunShim(context.Background(), manager.NewShimManager(name), func(c *shim.Config) { c.NoReaper = true })
}

// reap collects the exit statuses of the pod's processes.
func reap() {
	died := make(chan os.Signal, 32)
	signal.Notify(died, unix.SIGCHLD)
	for range died {
		if err := runc.Reap(reaper.Reap); err != nil {
			log.L.WithError(err).Error("reap exit status")
		}
	}
}
