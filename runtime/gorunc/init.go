//go:build inprocess

package runc

import (
	"os"

	// These packages register the device rules of cgroups, and the C code that enters namespaces.
	_ "github.com/opencontainers/cgroups/devices"
	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter"
)

// In a container's first process, this program ends here. libcontainer's C code has entered the
// namespaces before Go began; Init prepares the rest and executes the container's program. Go
// initializes packages with initialized imports in the order of their paths. So this comes before
// the shim's protocol buffers and services, which a container's first process does not need.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		libcontainer.Init()
	}
}
