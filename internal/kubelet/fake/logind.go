package fake

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Names on the bus (org.freedesktop.login1(5), org.freedesktop.systemd1(5)).
const (
	loginName    = "org.freedesktop.login1"
	loginPath    = "/org/freedesktop/login1"
	loginManager = loginName + ".Manager"
	unitName     = "org.freedesktop.systemd1"
	unitPath     = "/org/freedesktop/systemd1"
	unitManager  = unitName + ".Manager"
)

// Bus starts a D-Bus of the test's own and returns its address.
func Bus(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("this machine has no dbus-daemon, so there is no D-Bus to test with")
	}
	dir, err := os.MkdirTemp("", "bus") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "bus.conf")
	text := `<busconfig><type>system</type><listen>unix:path=` + dir + `/socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config-file="+config, "--nofork", "--nopidfile", "--print-address")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the daemon ends with this thread, thus also if the test is killed
		err := cmd.Start()
		started <- err
		if err == nil {
			_, _ = cmd.Process.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended; _ = out.Close() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return "unix:path=" + dir + "/socket"
}

// Logind is logind and systemd on a bus. A SIGHUP makes it read its drop-ins.
type Logind struct {
	conn *dbus.Conn
	// DropIns is the folder of logind's settings.
	DropIns string

	mu        sync.Mutex
	delay     uint64
	preparing bool
	locks     []*os.File
}

// NewLogind adds a logind to a bus.
func NewLogind(t *testing.T, address string) *Logind {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f := &Logind{conn: conn, DropIns: filepath.Join(t.TempDir(), "conf.d"), delay: 5_000_000}
	for iface, path := range map[string]dbus.ObjectPath{loginManager: loginPath, "org.freedesktop.DBus.Properties": loginPath, unitManager: unitPath} {
		if err := conn.Export(f, path, iface); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{loginName, unitName} {
		if _, err := conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// Get implements org.freedesktop.DBus.Properties.
func (f *Logind) Get(_, name string) (dbus.Variant, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name == "PreparingForShutdown" {
		return dbus.MakeVariant(f.preparing), nil
	}
	return dbus.MakeVariant(f.delay), nil
}

// Inhibit implements org.freedesktop.login1.Manager.
func (f *Logind) Inhibit(what, _, _, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || mode != "delay" {
		return -1, dbus.MakeFailedError(errors.New(what + " " + mode))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return -1, dbus.MakeFailedError(err)
	}
	f.mu.Lock()
	f.locks = append(f.locks, r, w)
	f.mu.Unlock()
	return dbus.UnixFD(w.Fd()), nil
}

// KillUnit implements org.freedesktop.systemd1.Manager.
func (f *Logind) KillUnit(unit, _ string, signal int32) *dbus.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	files, _ := filepath.Glob(filepath.Join(f.DropIns, "*.conf"))
	if unit != "systemd-logind.service" || signal != int32(unix.SIGHUP) || len(files) == 0 {
		return dbus.MakeFailedError(fmt.Errorf("%s gets signal %d with %d drop-ins", unit, signal, len(files)))
	}
	data, err := os.ReadFile(files[len(files)-1])
	if err != nil {
		return dbus.MakeFailedError(err)
	}
	for _, line := range strings.Split(string(data), "\n") {
		if n, err := strconv.ParseUint(strings.TrimPrefix(line, "InhibitDelayMaxSec="), 10, 32); err == nil {
			f.delay = n * 1_000_000
		}
	}
	return nil
}

// AwaitRelease waits until the last lock is released.
func (f *Logind) AwaitRelease(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	r, w := f.locks[len(f.locks)-2], f.locks[len(f.locks)-1]
	f.mu.Unlock()
	w.Close()
	done := make(chan error, 1)
	go func() { _, err := r.Read(make([]byte, 1)); done <- err }() // ends with the last writer
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the lock is still held")
	}
	r.Close()
}

// Announce announces that a shutdown begins, or that it is called off.
func (f *Logind) Announce(t *testing.T, begins bool) {
	t.Helper()
	if err := f.conn.Emit(loginPath, loginManager+".PrepareForShutdown", begins); err != nil {
		t.Fatal(err)
	}
}

// AwaitLocks waits until so many locks were taken.
func (f *Logind) AwaitLocks(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		n := len(f.locks) / 2
		f.mu.Unlock()
		if n >= want {
			return
		}
	}
	t.Fatal("the shutdown is not delayed")
}

// Prepare makes a shutdown begin before a program listens.
func (f *Logind) Prepare() {
	f.mu.Lock()
	f.preparing = true
	f.mu.Unlock()
}
