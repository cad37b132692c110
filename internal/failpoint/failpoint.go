// Package failpoint names places in the node's code at which tests interrupt knarr: between two
// steps that a crash may separate.
//
// Words. A point is such a place; its name is unique. A controller is the test's server, which
// decides what happens at a point.
//
// A build has points only if the linker sets enabled; no release, package or `make` target for
// users does. In all other builds Here is one comparison of a variable that nothing sets, and no
// environment variable, flag or file changes that (docs/adr/0064).
//
// In: the controller's socket, from the environment variable KNARR_FAILPOINTS. Out: the name of
// each reached point, one line on a connection of its own. The goroutine waits until the controller
// closes the connection. Without a controller, it goes on at once.
package failpoint

import (
	"fmt"
	"io"
	"net"
	"os"
)

// Variable is the environment variable with the path of the controller's socket.
const Variable = "KNARR_FAILPOINTS"

// Symbol is what the linker's option -X sets to a text that is not empty, to enable the points.
const Symbol = "github.com/knarr-project/knarr/internal/failpoint.enabled"

var enabled string

// Enabled reports whether this build has points.
func Enabled() bool { return enabled != "" }

// Here is the point with this name.
func Here(name string) {
	if enabled != "" {
		reach(os.Getenv(Variable), name)
	}
}

func reach(socket, name string) {
	if socket == "" {
		return
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return // the controller has ended
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, name); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, conn)
}
