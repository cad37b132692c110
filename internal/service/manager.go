package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/durable"
)

// scriptPath is the place of init scripts.
const scriptPath = "/etc/init.d/" + Name

// kind is a service manager.
type kind struct {
	name string
	// path is the definition's place, and mode its mode.
	path string
	mode fs.FileMode
	text func(Service) string
	// Commands of the service manager. A command without words is not needed.
	reload, enable, disable, start, restart, stop, active []string
}

var (
	systemd = kind{
		name: "systemd", path: "/etc/systemd/system/" + Name + ".service", mode: 0o644, text: Unit,
		reload: []string{"systemctl", "daemon-reload"},
		enable: []string{"systemctl", "enable", Name}, disable: []string{"systemctl", "disable", Name},
		start: []string{"systemctl", "start", Name}, restart: []string{"systemctl", "restart", Name},
		stop: []string{"systemctl", "stop", Name}, active: []string{"systemctl", "is-active", "--quiet", Name},
	}
	openRC = script("OpenRC", OpenRC,
		[]string{"rc-update", "add", Name, "default"}, []string{"rc-update", "del", Name, "default"}, "rc-service", Name)
	debian = script("SysV init", SysV,
		[]string{"update-rc.d", Name, "defaults"}, []string{"update-rc.d", "-f", Name, "remove"}, scriptPath)
	redHat = script("SysV init", SysV,
		[]string{"chkconfig", "--add", Name}, []string{"chkconfig", "--del", Name}, scriptPath)
)

// script returns the kind of an init script. The words of run come before start, stop and so on.
func script(name string, text func(Service) string, enable, disable []string, run ...string) kind {
	do := func(what string) []string { return append(append([]string{}, run...), what) }
	return kind{
		name: name, path: scriptPath, mode: 0o755, text: text, enable: enable, disable: disable,
		start: do("start"), restart: do("restart"), stop: do("stop"), active: do("status"),
	}
}

// Manager is the service manager of this machine.
type Manager struct {
	kind
	root string // in front of all paths
	run  func(ctx context.Context, words []string) error
}

// Detect finds the service manager of the machine.
func Detect() (*Manager, error) { return detect("/", runCommand) }

func detect(root string, run func(context.Context, []string) error) (*Manager, error) {
	has := func(paths ...string) bool {
		for _, path := range paths {
			if _, err := os.Stat(filepath.Join(root, path)); err == nil {
				return true
			}
		}
		return false
	}
	program := func(name string) bool { return has("/usr/sbin/"+name, "/sbin/"+name, "/usr/bin/"+name, "/bin/"+name) }
	found := func(k kind) (*Manager, error) { return &Manager{kind: k, root: root, run: run}, nil }
	init, _ := os.Readlink(filepath.Join(root, "sbin/init"))
	switch {
	case has("/run/systemd/system"):
		return found(systemd)
	case program("openrc-run") && has("/etc/init.d"):
		return found(openRC)
	case filepath.Base(init) == "systemd" && program("systemctl"):
		return found(systemd) // the machine's image is being built
	case program("update-rc.d") && has("/etc/init.d"):
		return found(debian)
	case program("chkconfig") && has("/etc/init.d"):
		return found(redHat)
	}
	return nil, errors.New("no service manager is here: systemd, OpenRC, or /etc/init.d with update-rc.d or chkconfig; let your own one run `knarr up`")
}

// Name returns the service manager's name.
func (m *Manager) Name() string { return m.kind.name }

// LogHint says where to look when knarr does not start.
func (m *Manager) LogHint() string {
	if m.reload != nil {
		return "`journalctl -u " + Name + "` shows why"
	}
	return "`knarr logs` and " + errorsFile + " show why"
}

// Path returns the path of the definition.
func (m *Manager) Path() string { return filepath.Join(m.root, m.path) }

// SecretsPath returns the path of the configuration file.
func (m *Manager) SecretsPath() string { return filepath.Join(m.root, SecretsFile) }

// Active reports whether the service runs.
func (m *Manager) Active(ctx context.Context) bool {
	d, err := read(m.Path())
	return err == nil && d != nil && m.run(ctx, m.active) == nil
}

// DataDir returns the data folder of the installed service, or "".
func (m *Manager) DataDir() string {
	d, err := read(m.Path())
	if err != nil || d == nil {
		return ""
	}
	return d.dataDir
}

// Restart restarts the service.
func (m *Manager) Restart(ctx context.Context) error { return m.all(ctx, m.restart) }

// Change is what Install has done to the definition.
type Change struct {
	// Before is the command line of the replaced definition; "" if there was none.
	Before string
	// Written means that the definition or the configuration file is new or has another content.
	Written bool
}

// Install writes the definition and the secrets, and enables the service. With start, it starts the
// service, or restarts it if something has changed. A failed start leaves the service installed.
func (m *Manager) Install(ctx context.Context, s Service, secrets []byte, start bool) (Change, error) {
	var change Change
	if err := s.check(); err != nil {
		return change, err
	}
	before, err := read(m.Path())
	if err != nil {
		return change, err
	}
	if before != nil {
		change.Before = before.command
	}
	text := m.text(s)
	kept, err := m.writeSecrets(secrets)
	if err != nil {
		return change, err
	}
	change.Written = !kept || before == nil || before.text != text
	if change.Written {
		err = m.write(text)
	}
	// Also after an installation that was interrupted here.
	err = errors.Join(err, os.Chmod(m.Path(), m.mode))
	if err != nil {
		return change, err
	}
	if !start {
		_ = m.all(ctx, m.reload) // systemd may not run; it reads the unit when it does
		return change, m.all(ctx, m.enable)
	}
	again := m.start
	if change.Written && before != nil && m.run(ctx, m.active) == nil {
		again = m.restart
	}
	return change, m.all(ctx, m.reload, m.enable, again)
}

func (m *Manager) write(text string) error {
	if err := os.MkdirAll(filepath.Dir(m.Path()), 0o755); err != nil {
		return err
	}
	return durable.WriteFile(m.Path(), []byte(text))
}

// writeSecrets replaces or removes the configuration file. kept means that nothing has changed.
func (m *Manager) writeSecrets(secrets []byte) (kept bool, err error) {
	path := m.SecretsPath()
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if string(before) == string(secrets) {
		return true, nil
	}
	if len(secrets) == 0 {
		return false, m.removeSecrets()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	return false, durable.WriteFile(path, secrets)
}

func (m *Manager) removeSecrets() error {
	err := os.Remove(m.SecretsPath())
	_ = os.Remove(filepath.Dir(m.SecretsPath())) // fails unless empty
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Uninstall stops the service and removes it. It returns the data folder, which stays, and whether
// there was a service.
func (m *Manager) Uninstall(ctx context.Context) (dataDir string, there bool, err error) {
	d, err := read(m.Path())
	if d == nil {
		return "", false, err
	}
	if m.run(ctx, m.active) == nil {
		if err := m.all(ctx, m.stop); err != nil {
			return d.dataDir, true, err
		}
	}
	// update-rc.d and chkconfig read the script; systemctl reads the unit.
	err = m.all(ctx, m.disable)
	err = errors.Join(err, os.Remove(m.Path()), m.removeSecrets())
	_ = m.all(ctx, m.reload) // systemd may not run
	return d.dataDir, true, err
}

// all runs commands until one fails.
func (m *Manager) all(ctx context.Context, steps ...[]string) error {
	for _, words := range steps {
		if len(words) == 0 {
			continue
		}
		if err := m.run(ctx, words); err != nil {
			return err
		}
	}
	return nil
}

// runCommand runs a command of the service manager. The error contains the end of its output.
func runCommand(ctx context.Context, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	// A file, not a pipe: a script's background processes keep it open.
	output, err := os.CreateTemp("", "knarr-service-")
	if err != nil {
		return err
	}
	defer output.Close()
	defer os.Remove(output.Name())
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	if err = cmd.Run(); err == nil {
		return nil
	}
	text, _ := os.ReadFile(output.Name())
	if len(text) > 2000 {
		text = text[len(text)-2000:]
	}
	return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, strings.TrimSpace(string(text)))
}
