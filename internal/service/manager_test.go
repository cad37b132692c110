package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine makes a root folder with files, and folders for names that end with '/'. A name with an
// arrow is a link.
func machine(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		name, to, link := strings.Cut(name, " -> ")
		path := filepath.Join(root, name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		err := os.MkdirAll(dir, 0o755)
		switch {
		case link:
			err = errors.Join(err, os.Symlink(to, path))
		case !strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.WriteFile(path, nil, 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestTheServiceManagerIsDetected(t *testing.T) {
	for name, one := range map[string]struct {
		files  []string
		enable string
	}{
		"systemd runs":                       {[]string{"run/systemd/system/", "etc/init.d/", "usr/sbin/update-rc.d"}, "systemctl enable knarr"},
		"an image with systemd is built":     {[]string{"usr/bin/systemctl", "sbin/init -> /lib/systemd/systemd", "etc/init.d/", "usr/sbin/update-rc.d"}, "systemctl enable knarr"},
		"OpenRC":                             {[]string{"sbin/openrc-run", "etc/init.d/"}, "rc-update add knarr default"},
		"SysV init of Debian":                {[]string{"sbin/init", "usr/sbin/update-rc.d", "etc/init.d/"}, "update-rc.d knarr defaults"},
		"SysV init of Debian with systemctl": {[]string{"sbin/init", "usr/bin/systemctl", "usr/sbin/update-rc.d", "etc/init.d/"}, "update-rc.d knarr defaults"},
		"SysV init of Red Hat":               {[]string{"sbin/chkconfig", "etc/init.d/"}, "chkconfig --add knarr"},
		"nothing":                            {nil, ""},
		"no folder for scripts":              {[]string{"usr/sbin/update-rc.d"}, ""},
	} {
		m, err := detect(machine(t, one.files...), nil)
		if one.enable == "" {
			if err == nil || !strings.Contains(err.Error(), "no service manager is here") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || strings.Join(m.enable, " ") != one.enable {
			t.Errorf("%s: %+v %v", name, m, err)
		}
	}
}

// fakeRun records commands. It keeps whether the service runs, and fails the commands in fail.
type fakeRun struct {
	lines  []string
	active bool
	fail   string
}

func (f *fakeRun) run(_ context.Context, words []string) error {
	line := strings.Join(words, " ")
	if f.fail != "" && strings.Contains(line, f.fail) {
		return errors.New(line + ": failed")
	}
	switch {
	case strings.Contains(line, "is-active"):
		if !f.active {
			return errors.New("inactive")
		}
		return nil
	case strings.Contains(line, "start"):
		f.active = true
	case strings.Contains(line, "stop"):
		f.active = false
	}
	f.lines = append(f.lines, line)
	return nil
}

func (f *fakeRun) took() []string {
	lines := f.lines
	f.lines = nil
	return lines
}

func TestAServiceIsInstalledReplacedAndRemoved(t *testing.T) {
	var commands fakeRun
	m, err := detect(machine(t, "run/systemd/system/"), commands.run)
	if err != nil {
		t.Fatal(err)
	}
	install := func(s Service, secrets string, start bool, want Change, lines ...string) {
		t.Helper()
		change, err := m.Install(t.Context(), s, []byte(secrets), start)
		if err != nil || change != want {
			t.Errorf("got %+v %v, want %+v", change, err, want)
		}
		if got := commands.took(); !slices.Equal(got, lines) {
			t.Errorf("commands %q, want %q", got, lines)
		}
	}
	const reload, enable = "systemctl daemon-reload", "systemctl enable knarr"
	install(plain, "", false, Change{Written: true}, reload, enable)
	install(plain, "", true, Change{Before: plain.Command()}, reload, enable, "systemctl start knarr")
	other := Service{Program: plain.Program, Args: []string{"node", "--join=https://10.0.0.5:6443"}, DataDir: "/srv/node"}
	install(other, "token: t\n", true, Change{Before: plain.Command(), Written: true}, reload, enable, "systemctl restart knarr")
	if info, err := os.Stat(m.SecretsPath()); err != nil || info.Mode().Perm() != 0o600 || content(m.SecretsPath()) != "token: t\n" {
		t.Errorf("the file of secrets: %v %v", info, err)
	}
	if info, err := os.Stat(m.Path()); err != nil || info.Mode().Perm() != 0o644 || content(m.Path()) != Unit(other) {
		t.Errorf("the unit: %v %v", info, err)
	}
	dataDir, there, err := m.Uninstall(t.Context())
	if dataDir != "/srv/node" || !there || err != nil {
		t.Error(dataDir, there, err)
	}
	if got, want := commands.took(), []string{"systemctl stop knarr", "systemctl disable knarr", reload}; !slices.Equal(got, want) {
		t.Errorf("commands %q, want %q", got, want)
	}
	for _, path := range []string{m.Path(), m.SecretsPath(), filepath.Dir(m.SecretsPath())} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	if _, there, err := m.Uninstall(t.Context()); there || err != nil || len(commands.took()) != 0 {
		t.Errorf("a second uninstallation: %v %v", there, err)
	}
}

func TestAForeignDefinitionStays(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a unit of the administrator": func(path string) error { return os.WriteFile(path, []byte("[Service]\n"), 0o644) },
		"a masked unit":               func(path string) error { return os.Symlink("/dev/null", path) },
		"a link to a unit of knarr's": func(path string) error {
			return errors.Join(os.WriteFile(path+".real", []byte(Unit(plain)), 0o644), os.Symlink(path+".real", path))
		},
	} {
		var commands fakeRun
		m, err := detect(machine(t, "run/systemd/system/", "etc/systemd/system/"), commands.run)
		if err != nil {
			t.Fatal(err)
		}
		if err := make(m.Path()); err != nil {
			t.Fatal(err)
		}
		before := content(m.Path())
		if _, err := m.Install(t.Context(), plain, []byte("token: t\n"), true); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: install: %v", name, err)
		}
		if _, _, err := m.Uninstall(t.Context()); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: uninstall: %v", name, err)
		}
		if _, err := os.Lstat(m.SecretsPath()); err == nil || content(m.Path()) != before || len(commands.lines) != 0 {
			t.Errorf("%s: something was changed", name)
		}
	}
}

func TestAServiceThatDoesNotStopIsNotRemoved(t *testing.T) {
	commands := fakeRun{}
	m, err := detect(machine(t, "run/systemd/system/"), commands.run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Install(t.Context(), plain, nil, true); err != nil {
		t.Fatal(err)
	}
	commands.fail = "stop"
	if _, there, err := m.Uninstall(t.Context()); !there || err == nil {
		t.Error(there, err)
	}
	if _, err := os.Stat(m.Path()); err != nil {
		t.Error(err)
	}
}

func TestAnInitScriptCanBeRun(t *testing.T) {
	var commands fakeRun
	m, err := detect(machine(t, "sbin/openrc-run", "etc/init.d/"), commands.run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Install(t.Context(), plain, nil, false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(m.Path()); err != nil || info.Mode().Perm() != 0o755 {
		t.Error(info, err)
	}
}
