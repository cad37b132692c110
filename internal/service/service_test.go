package service

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var plain = Service{Program: "/usr/local/bin/knarr", Args: []string{"up", "--listen=0.0.0.0:6443"}, DataDir: "/var/lib/knarr"}

func TestAUnitKeepsPodsAndStartsAgainAfterACrash(t *testing.T) {
	unit := Unit(plain)
	for _, line := range []string{
		mark, "# Data folder: /var/lib/knarr", "ExecStart=/usr/local/bin/knarr up --listen=0.0.0.0:6443",
		"KillMode=process", "Delegate=yes", "Restart=on-failure", "OOMPolicy=continue", "OOMScoreAdjust=-999", "LimitNOFILE=1048576",
		"TasksMax=infinity", "After=network-online.target", "Wants=network-online.target", "WantedBy=multi-user.target",
	} {
		if !strings.Contains(unit, line+"\n") {
			t.Errorf("the unit has no line %q:\n%s", line, unit)
		}
	}
}

func TestWordsOfAUnitReachTheProgramUnchanged(t *testing.T) {
	for word, want := range map[string]string{
		"--listen=[::]:6443":  "--listen=[::]:6443",
		"--data-dir=/srv/a b": `"--data-dir=/srv/a b"`,
		"":                    `""`,
		"100%":                "100%%",
		"$HOME":               "$$HOME",
		`a"b\c`:               `"a\"b\\c"`,
		"it's":                `"it's"`,
		";":                   `";"`,
	} {
		if got := unitWord(word); got != want {
			t.Errorf("%q is written %s, want %s", word, got, want)
		}
	}
}

func TestWordsOfAScriptReachTheProgramUnchanged(t *testing.T) {
	for _, word := range []string{"plain", "", "a b", "it's", "$HOME", "`id`", "$(id)", `a"b\c`, "*", "~", "#", "a;b", "ä", "-n", "a\\"} {
		out, err := exec.Command("sh", "-c", "printf %s "+shellWord(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q becomes %q (%v)", word, out, err)
		}
	}
}

func TestScriptsAreValidShell(t *testing.T) {
	odd := Service{Program: "/opt/it's here/knarr", Args: []string{"up", "--node-labels=a=b,c=d", "--x=$(id) `id`"}, DataDir: "/srv/a b"}
	for name, text := range map[string]string{"SysV": SysV(plain), "OpenRC": OpenRC(plain), "SysV with odd words": SysV(odd), "OpenRC with odd words": OpenRC(odd)} {
		path := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("sh", "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func TestDefinitionsTellTheirDataFolderAndCommand(t *testing.T) {
	s := Service{Program: "/usr/bin/knarr", Args: []string{"up", "--data-dir=/srv/a b"}, DataDir: "/srv/a b"}
	for name, text := range map[string]string{"systemd": Unit(s), "SysV": SysV(s), "OpenRC": OpenRC(s)} {
		d := parse(text)
		if d == nil || d.dataDir != s.DataDir || d.command != "/usr/bin/knarr up '--data-dir=/srv/a b'" {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if d := parse("[Service]\nExecStart=/usr/bin/other\n# Data folder: /\n"); d != nil {
		t.Errorf("a foreign unit counts as knarr's: %+v", d)
	}
}

func TestWordsWithLineBreaksAreRefused(t *testing.T) {
	s := plain
	s.Args = []string{"up", "--node-name=a\nExecStartPre=/bin/false"}
	if err := s.check(); err == nil || !strings.Contains(err.Error(), "control characters") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Unit(plain))
	f.Add(SysV(plain))
	f.Add("#!/bin/sh\n")
	f.Fuzz(func(t *testing.T, text string) {
		if d := parse(text); d != nil && !strings.Contains(text, mark) {
			t.Errorf("%q counts as knarr's", text)
		}
	})
}

// scriptInFolder writes the init script with all its files in a folder, and with a fake knarr.
func scriptInFolder(t *testing.T, fake string) (dir string, run func(what string) (string, int)) {
	t.Helper()
	dir = t.TempDir()
	program := filepath.Join(dir, "knarr")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+fake), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "script")
	text := SysV(Service{Program: program, Args: []string{"up", "--node-name=a b"}, DataDir: dir})
	text = strings.NewReplacer(scriptPath, path, pidFile, filepath.Join(dir, "pid"), errorsFile, filepath.Join(dir, "errors"), "sleep 5", "sleep 0.1").Replace(text)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	run = func(what string) (string, int) {
		t.Helper()
		out, err := os.Create(filepath.Join(dir, "output"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := exec.Command("sh", path, what)
		cmd.Stdout, cmd.Stderr = out, out
		_ = cmd.Run()
		return content(out.Name()), cmd.ProcessState.ExitCode()
	}
	t.Cleanup(func() { run("stop") })
	return dir, run
}

func content(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// fakeKnarr starts a pod that outlives it, and runs until SIGTERM.
const fakeKnarr = `cd "$(dirname "$0")" || exit 1
[ "$1 $2" = "up --node-name=a b" ] || { echo "wrong words" >&2; exit 1; }
[ "$KNARR_BACKGROUND$KNARR_SUPERVISE" = 1 ] || { echo "wrong environment" >&2; exit 1; }
[ -e pod ] || { setsid sleep 300 & echo $! >pod; }
echo $$ >>runs
trap 'exit 0' TERM
while :; do sleep 0.1; done
`

func TestTheInitScriptStartsStopsAndTellsItsStatus(t *testing.T) {
	dir, run := scriptInFolder(t, fakeKnarr)
	runs := func() []string { return strings.Fields(content(filepath.Join(dir, "runs"))) }
	pod := func() string { return strings.TrimSpace(content(filepath.Join(dir, "pod"))) }
	t.Cleanup(func() { _ = exec.Command("kill", pod()).Run() })
	want := func(what, text string, status int) {
		t.Helper()
		if out, got := run(what); got != status || !strings.Contains(out, text) {
			t.Errorf("%s: status %d, want %d; %s%s", what, got, status, out, content(filepath.Join(dir, "errors")))
		}
	}
	want("status", "knarr does not run", 3)
	want("stop", "knarr does not run", 0)
	want("start", "", 0)
	want("status", "knarr runs", 0)
	want("start", "knarr runs already", 0)
	eventually(t, "it runs", func() bool { return len(runs()) == 1 })

	if err := exec.Command("kill", "-9", runs()[0]).Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs again after a crash", func() bool { return len(runs()) == 2 })
	want("restart", "", 0)
	eventually(t, "it runs again after a restart", func() bool { return len(runs()) == 3 })
	want("stop", "", 0)
	want("status", "knarr does not run", 3)
	if exec.Command("kill", "-0", runs()[2]).Run() == nil {
		t.Error("knarr runs after stop")
	}
	if exec.Command("kill", "-0", pod()).Run() != nil {
		t.Error("the pod has ended with knarr")
	}
}

func TestTheInitScriptLeavesKnarrStoppedAfterKnarrStop(t *testing.T) {
	dir, run := scriptInFolder(t, fakeKnarr)
	if out, status := run("start"); status != 0 {
		t.Fatal(status, out)
	}
	t.Cleanup(func() { _ = exec.Command("kill", strings.TrimSpace(content(filepath.Join(dir, "pod")))).Run() })
	eventually(t, "it runs", func() bool { return content(filepath.Join(dir, "runs")) != "" })
	_ = exec.Command("kill", strings.TrimSpace(content(filepath.Join(dir, "runs")))).Run()
	eventually(t, "the service ends", func() bool { _, status := run("status"); return status == 3 })
	if n := len(strings.Fields(content(filepath.Join(dir, "runs")))); n != 1 {
		t.Errorf("knarr has run %d times", n)
	}
}
