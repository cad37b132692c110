package failpoint

import (
	"bufio"
	"net"
	"path/filepath"
	"testing"
)

// controller serves a socket and returns its path and its connections.
func controller(t *testing.T) (string, <-chan net.Conn) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	conns := make(chan net.Conn, 8)
	go func() {
		defer close(conns)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns <- conn
		}
	}()
	return socket, conns
}

func TestAnOrdinaryBuildHasNoPoints(t *testing.T) {
	socket, conns := controller(t)
	t.Setenv(Variable, socket)
	if Enabled() {
		t.Fatal("the test binary has points")
	}
	t.Setenv(BugsVariable, "some")
	if Bug("some") {
		t.Error("the test binary has seeded bugs")
	}
	Here("anywhere")
	select {
	case <-conns:
		t.Error("a point called the controller")
	default:
	}
	if n := testing.AllocsPerRun(100, func() { Here("anywhere") }); n != 0 {
		t.Errorf("a disabled point allocates %v times", n)
	}
}

func TestAPointWaitsForTheController(t *testing.T) {
	socket, conns := controller(t)
	t.Setenv(Variable, socket)
	enabled = "1"
	t.Cleanup(func() { enabled = "" })
	done := make(chan struct{})
	go func() {
		defer close(done)
		Here("somewhere")
	}()
	conn := <-conns
	name, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || name != "somewhere\n" {
		t.Errorf("the controller read %q, %v", name, err)
	}
	select {
	case <-done:
		t.Error("the point did not wait")
	default:
	}
	conn.Close()
	<-done
}

func TestAPointWithoutAControllerGoesOn(t *testing.T) {
	enabled = "1"
	t.Cleanup(func() { enabled = "" })
	t.Setenv(Variable, filepath.Join(t.TempDir(), "nothing"))
	Here("nowhere")
	t.Setenv(Variable, "")
	Here("nowhere")
}

func TestTheEnvironmentNamesTheBugs(t *testing.T) {
	enabled = "1"
	t.Cleanup(func() { enabled = "" })
	t.Setenv(BugsVariable, "one,two")
	for name, want := range map[string]bool{"one": true, "two": true, "three": false} {
		if Bug(name) != want {
			t.Errorf("the bug %s: %v, expected %v", name, !want, want)
		}
	}
}
