package shutdown

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/knarr-project/knarr/internal/kubelet/fake"
)

func next(t *testing.T, l *login) bool {
	t.Helper()
	select {
	case is, ok := <-l.Signals():
		if !ok {
			t.Fatal("the connection is closed")
		}
		return is
	case <-time.After(time.Minute):
		t.Fatal("no signal")
	}
	return false
}

func TestLogindAnnouncesAndWaitsForTheLock(t *testing.T) {
	address := fake.Bus(t)
	f := fake.NewLogind(t, address)
	l, err := connect(t.Context(), address, f.DropIns)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if d, err := l.Delay(t.Context()); err != nil || d != 5*time.Second {
		t.Errorf("the delay is %s, %v", d, err)
	}
	release, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.Announce(t, true)
	if !next(t, l) {
		t.Error("a shutdown is announced as called off")
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	f.AwaitRelease(t)
	f.Announce(t, false)
	if next(t, l) {
		t.Error("a shutdown that is called off is announced as one")
	}
}

func TestAShutdownThatBeganBeforeIsAnnounced(t *testing.T) {
	address := fake.Bus(t)
	f := fake.NewLogind(t, address)
	f.Prepare()
	l, err := connect(t.Context(), address, f.DropIns)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !next(t, l) {
		t.Error("not announced")
	}
}

func TestSignalsOfOthersAreNotBelieved(t *testing.T) {
	address := fake.Bus(t)
	f := fake.NewLogind(t, address)
	l, err := connect(t.Context(), address, f.DropIns)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	liar, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer liar.Close()
	// A signal with a destination passes any match rule.
	message := &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldInterface: dbus.MakeVariant(loginManager), dbus.FieldMember: dbus.MakeVariant(announcement), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(loginPath)),
		dbus.FieldDestination: dbus.MakeVariant(l.bus.Names()[0]), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true)),
	}, Body: []any{true}}
	if call := liar.Send(message, nil); call.Err != nil {
		t.Fatal(call.Err)
	}
	// With an answer to a later call, the signal is out.
	if err := liar.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
	f.Announce(t, false)
	if next(t, l) {
		t.Error("a shutdown was believed that logind did not announce")
	}
}

func TestALongerDelayIsAskedFor(t *testing.T) {
	address := fake.Bus(t)
	f := fake.NewLogind(t, address)
	l, err := connect(t.Context(), address, f.DropIns)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Extend(t.Context(), 90*time.Second); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Delay(t.Context()); err != nil || d != 90*time.Second {
		t.Errorf("the delay is %s, %v", d, err)
	}
	for range 2 { // the second time there is nothing to remove
		if err := purge(f.DropIns); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(f.DropIns); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestNoBusAndNoLogindAreUnsupported(t *testing.T) {
	_, err := connect(t.Context(), "unix:path="+filepath.Join(t.TempDir(), "none"), "")
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without a bus: %v", err)
	}
	if _, err := connect(t.Context(), fake.Bus(t), ""); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without logind: %v", err)
	}
}

func TestTheInitSystemTellsAPlainStopFromAShutdown(t *testing.T) {
	record := func(kind, pid byte) string {
		r := make([]byte, utmpSize)
		r[0], r[4] = kind, pid
		return string(r)
	}
	for name, c := range map[string]struct {
		files map[string]string
		pid   int
		want  bool
	}{
		"no init system":          {pid: 7},
		"process 1":               {pid: 1, want: true},
		"OpenRC in a runlevel":    {files: map[string]string{"run/openrc/softlevel": "default\n"}, pid: 7},
		"OpenRC shuts down":       {files: map[string]string{"run/openrc/softlevel": "shutdown\n"}, pid: 7, want: true},
		"OpenRC reboots":          {files: map[string]string{"run/openrc/softlevel": "reboot"}, pid: 7, want: true},
		"SysV init in runlevel 2": {files: map[string]string{"run/utmp": record(2, 0) + record(utmpRunlevl, '2') + record(7, '6')}, pid: 7},
		"SysV init halts":         {files: map[string]string{"run/utmp": record(utmpRunlevl, '2') + record(utmpRunlevl, '0')}, pid: 7, want: true},
		"SysV init reboots":       {files: map[string]string{"run/utmp": record(utmpRunlevl, '6') + "cut off"}, pid: 7, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := halting(root, c.pid); got != c.want {
				t.Errorf("halting is %v", got)
			}
		})
	}
}

func TestSystemdsOwnSocketTellsThatItStops(t *testing.T) {
	if _, ok := stopping(context.Background(), "unix:path="+filepath.Join(t.TempDir(), "none")); ok {
		t.Error("an answer from no socket")
	}
}
