//go:build inprocess

package runc

import (
	"os"

	// Device rules of cgroups and the C code that enters namespaces register themselves.
	_ "github.com/opencontainers/cgroups/devices"
	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter"
)

// As the first process of a container, this program ends here: libcontainer's C code has entered the namespaces before Go began, and
// Init prepares the rest and executes the container's own program. Go initializes packages whose imports are ready by path, so
// this comes before the protocol buffers and services of the shim, which a container's first process does not need.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		libcontainer.Init()
	}
}
