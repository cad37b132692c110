// Package failpoint names places in knarr's code at which tests interrupt it, between two steps
// that a crash may separate, or make it wrong, to see whether other tests notice.
//
// Words. A point is a place to interrupt; its name is unique. A controller is the test's server,
// which decides what happens at a point. A seeded bug is a place at which the code may do what a
// programmer could have written by mistake.
//
// A build has points and bugs only if the linker sets enabled; no release, package or `make` target
// for users does. In all other builds Here and Bug are one comparison of a variable that nothing
// sets, and no environment variable, flag or file changes that (docs/adr/0064).
//
// In: the controller's socket, from the environment variable KNARR_FAILPOINTS, and the names of the
// seeded bugs, from KNARR_BUGS. Out: the name of each reached point, one line on a connection of
// its own. The goroutine waits until the controller closes the connection. Without a controller, it
// goes on at once.
package failpoint

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

// Variable is the environment variable with the path of the controller's socket.
const Variable = "KNARR_FAILPOINTS"

// BugsVariable is the environment variable with the names of the seeded bugs, with commas between.
const BugsVariable = "KNARR_BUGS"

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

// Bug reports whether the code has the seeded bug with this name. Each bug and the tests that must
// find it are in a table of test/chaos.
func Bug(name string) bool { return enabled != "" && seeded()[name] }

// seeded are the names of the process's bugs.
var seeded = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Split(os.Getenv(BugsVariable), ",") {
		names[name] = true
	}
	return names
})

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
