package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/service"
)

func TestFlagsOfInstallAreSeparatedFromThoseOfTheCommand(t *testing.T) {
	asked, err := splitInstall([]string{"--node", "--join", "https://a:6443", "--no-start", "--log-level=debug"})
	if err != nil || asked.role != "node" || !asked.noStart || !slices.Equal(asked.flags, []string{"--join", "https://a:6443", "--log-level=debug"}) {
		t.Errorf("%+v %v", asked, err)
	}
	for _, wrong := range [][]string{{"--node", "--server"}, {"--detach"}, {"-d"}} {
		if _, err := splitInstall(wrong); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}

// planned plans a service as `knarr install` does.
func planned(t *testing.T, args ...string) (service.Service, string, error) {
	t.Helper()
	asked, err := splitInstall(args)
	if err != nil {
		t.Fatal(err)
	}
	s, secrets, err := plan(find(t, []string{"install"}), asked)
	return s, string(secrets), err
}

func TestAServiceRunsWithTheFlagsGiven(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("knarr.yaml", []byte("log-level: debug\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, secrets, err := planned(t, "--server", "--data-dir", "data", "--config=knarr.yaml", "--tls-san", "a.example,b.example", "--listen", "127.0.0.1:7443", "--service-account-key-file", "a.pub", "--service-account-key-file=/b.pub")
	want := []string{"server", "--config=" + filepath.Join(dir, "knarr.yaml"), "--data-dir=" + filepath.Join(dir, "data"), "--listen=127.0.0.1:7443", "--service-account-key-file=/b.pub", "--service-account-key-file=" + filepath.Join(dir, "a.pub"), "--tls-san=a.example,b.example"}
	slices.Sort(s.Args[1:])
	if err != nil || !slices.Equal(s.Args, want) || secrets != "" || s.DataDir != filepath.Join(dir, "data") || !filepath.IsAbs(s.Program) {
		t.Errorf("%+v %q %v, want %q", s, secrets, err, want)
	}
}

func TestSecretsOfAServiceAreNotOnItsCommandLine(t *testing.T) {
	s, secrets, err := planned(t, "--server", "--data-dir", t.TempDir(), "--store", "https://me:password@etcd:2379")
	line := strings.Join(s.Args, " ")
	if err != nil || strings.Contains(line, "password") || !strings.HasSuffix(line, "--config="+service.SecretsFile) || secrets != "store:\n- https://me:password@etcd:2379\n" {
		t.Errorf("%q %q %v", line, secrets, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("a node needs root")
	}
	s, secrets, err = planned(t, "--node", "--data-dir", t.TempDir(), "--join", "https://10.0.0.5:6443", "--token", "very-secret")
	line = strings.Join(s.Args, " ")
	if err != nil || strings.Contains(line, "very-secret") || secrets != "token: very-secret\n" {
		t.Errorf("%q %q %v", line, secrets, err)
	}
	own := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = planned(t, "--node", "--data-dir", t.TempDir(), "--join", "https://10.0.0.5:6443", "--token", "very-secret", "--config", own)
	if err == nil || !strings.Contains(err.Error(), "token: VALUE") || strings.Contains(err.Error(), "very-secret") {
		t.Errorf("got %v", err)
	}
}

func TestFlagsOfAServiceAreCheckedAsTheCommandDoes(t *testing.T) {
	for line, want := range map[string]string{
		"--server --listn x":       "unknown flag --listn; did you mean --listen?\nRead `knarr server --help`.",
		"--server --log-level wow": `log-level: "wow" is not usable`,
		"--server --listen here":   `listen: "here" is not usable`,
		"--server here":            `server takes no arguments, got "here"`,
	} {
		if _, _, err := planned(t, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) || Status(err) != usageStatus {
			t.Errorf("install %s: %v, want %q", line, err, want)
		}
	}
}

func TestPathsOfAServiceAreAbsolute(t *testing.T) {
	t.Chdir("/")
	for value, want := range map[string]string{"a/b": "/a/b", "/a=b": "/a=b", "fast=disk": "fast=/disk", "fast=/disk": "fast=/disk", "-": "-", "": ""} {
		if got, err := absolute(value, nil); got != want || err != nil {
			t.Errorf("%q becomes %q, want %q (%v)", value, got, want, err)
		}
	}
}

func TestUninstallNamesThePurgeOfTheDataThatStays(t *testing.T) {
	var out strings.Builder
	if err := printUninstalled(&out, "/etc/systemd/system/knarr.service", "/srv/one", true); err != nil || !strings.Contains(out.String(), "`knarr purge --data-dir /srv/one` removes both") {
		t.Errorf("%v %s", err, &out)
	}
}
