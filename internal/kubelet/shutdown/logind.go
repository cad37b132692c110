package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Names on the system's D-Bus (org.freedesktop.login1(5), org.freedesktop.systemd1(5)).
const (
	loginName    = "org.freedesktop.login1"
	loginPath    = "/org/freedesktop/login1"
	loginManager = loginName + ".Manager"
	loginUnit    = "systemd-logind.service"
	unitName     = "org.freedesktop.systemd1"
	unitPath     = "/org/freedesktop/systemd1"
	unitManager  = unitName + ".Manager"
	announcement = "PrepareForShutdown"
)

const (
	// busSocket is the address of the system's D-Bus unless the environment has another.
	busSocket = "unix:path=/run/dbus/system_bus_socket"
	// dropIns is the folder of logind's settings until the next start of the machine.
	dropIns = "/run/systemd/logind.conf.d"
	dropIn  = "99-knarr.conf"
	// reloadTime bounds the wait for logind to read its settings again.
	reloadTime = 5 * time.Second
)

// System connects to this machine's logind.
func System(ctx context.Context) (Logind, error) {
	address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	if address == "" {
		address = busSocket
	}
	return connect(ctx, address, dropIns)
}

// login is a connection to logind. It implements Logind.
type login struct {
	bus     *dbus.Conn
	manager dbus.BusObject
	dropIns string
	signals chan bool
}

func connect(ctx context.Context, address, dropIns string) (*login, error) {
	// The connection closes with ctx, also if the bus does not answer.
	bus, err := dbus.Connect(address, dbus.WithContext(ctx))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: no D-Bus of the system at %s", errors.ErrUnsupported, address)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the system's D-Bus at %s: %w", address, err)
	}
	l := &login{bus: bus, manager: bus.Object(loginName, loginPath), dropIns: dropIns, signals: make(chan bool, 16)}
	if err := l.watch(ctx); err != nil {
		bus.Close()
		return nil, err
	}
	return l, nil
}

// watch passes on logind's announcements, beginning with one that was made before.
func (l *login) watch(ctx context.Context) error {
	err := l.bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(loginName), dbus.WithMatchObjectPath(loginPath),
		dbus.WithMatchInterface(loginManager), dbus.WithMatchMember(announcement))
	if err != nil {
		return fmt.Errorf("watch logind: %w", err)
	}
	received := make(chan *dbus.Signal, 16)
	l.bus.Signal(received)
	var already bool
	if err := l.property(ctx, "PreparingForShutdown", &already); err != nil {
		return err
	}
	if already {
		l.signals <- true
	}
	go func() {
		defer close(l.signals)
		for s := range received { // ends with the connection
			if begins, ok := l.announced(s); ok {
				select {
				case l.signals <- begins:
				case <-l.bus.Context().Done():
				}
			}
		}
	}()
	return nil
}

// announced reads an announcement. Every user of the bus can send a signal to this connection, so
// the sender must be logind.
func (l *login) announced(s *dbus.Signal) (begins, ok bool) {
	if s.Name != loginManager+"."+announcement || s.Path != loginPath || len(s.Body) != 1 {
		return false, false
	}
	var owner string
	if err := l.bus.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, loginName).Store(&owner); err != nil || owner != s.Sender {
		return false, false
	}
	begins, ok = s.Body[0].(bool)
	return begins, ok
}

func (l *login) property(ctx context.Context, name string, value any) error {
	var v dbus.Variant
	err := l.manager.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, loginManager, name).Store(&v)
	var said dbus.Error
	if errors.As(err, &said) && said.Name == "org.freedesktop.DBus.Error.ServiceUnknown" {
		return fmt.Errorf("%w: no logind on the system's D-Bus", errors.ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("read %s of logind: %w", name, err)
	}
	if err := v.Store(value); err != nil {
		return fmt.Errorf("read %s of logind: %w", name, err)
	}
	return nil
}

// Delay implements Logind.
func (l *login) Delay(ctx context.Context) (time.Duration, error) {
	var micro uint64
	err := l.property(ctx, "InhibitDelayMaxUSec", &micro)
	return time.Duration(min(micro, 1<<53)) * time.Microsecond, err
}

// Extend implements Logind. The setting is in a file that is gone after the machine's next start.
func (l *login) Extend(ctx context.Context, d time.Duration) error {
	seconds := int64((d + time.Second - 1) / time.Second)
	if err := os.MkdirAll(l.dropIns, 0o755); err != nil {
		return err
	}
	file := filepath.Join(l.dropIns, dropIn)
	content := fmt.Sprintf("# Written by knarr: pods get this long to end before a shutdown.\n[Login]\nInhibitDelayMaxSec=%d\n", seconds)
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		return err
	}
	call := l.bus.Object(unitName, unitPath).CallWithContext(ctx, unitManager+".KillUnit", 0, loginUnit, "all", int32(unix.SIGHUP))
	if call.Err != nil {
		return fmt.Errorf("make logind read %s: %w", file, call.Err)
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	for {
		have, err := l.Delay(ctx)
		if err != nil || have >= d {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("logind still waits only for %s, in spite of %s", have, file)
		case <-time.After(look):
		}
	}
}

// Purge removes the setting of Extend from this machine. logind keeps its delay until it reads its
// settings again, so other clusters of the machine are not disturbed.
func Purge() error { return purge(dropIns) }

func purge(dropIns string) error {
	if err := os.Remove(filepath.Join(dropIns, dropIn)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(dropIns) // fails unless empty
	return nil
}

// Lock implements Logind.
func (l *login) Lock(ctx context.Context) (release func() error, err error) {
	var fd dbus.UnixFD
	err = l.manager.CallWithContext(ctx, loginManager+".Inhibit", 0, "shutdown", "knarr", "pods need time to end", "delay").Store(&fd)
	if err != nil {
		return nil, fmt.Errorf("delay shutdowns by logind: %w", err)
	}
	unix.CloseOnExec(int(fd))
	held := os.NewFile(uintptr(fd), "logind's lock")
	return func() error {
		if err := held.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
		return nil
	}, nil
}

// Signals implements Logind.
func (l *login) Signals() <-chan bool { return l.signals }

// Close implements Logind.
func (l *login) Close() error { return l.bus.Close() }

// stopping reports whether systemd at the address is shutting the machine down. ok is false if
// nothing answers there.
func stopping(ctx context.Context, address string) (is, ok bool) {
	// systemd's own socket speaks D-Bus without the bus: there are no names and no greeting.
	bus, err := dbus.Dial(address, dbus.WithContext(ctx))
	if err != nil {
		return false, false
	}
	defer bus.Close()
	if err := bus.Auth(nil); err != nil {
		return false, false
	}
	var v dbus.Variant
	err = bus.Object(unitName, unitPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, unitManager, "SystemState").Store(&v)
	if err != nil {
		return false, false
	}
	state, _ := v.Value().(string)
	return strings.EqualFold(state, "stopping"), true
}
