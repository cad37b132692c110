package clusters

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// process starts a program that runs until the test ends, and returns its record in a new data
// folder.
func process(t *testing.T, g Registry, name string) (*Record, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	identity, err := Identity(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &Record{DataDir: dir, Role: "up", PID: cmd.Process.Pid, Process: identity, Started: time.Now(), Ready: time.Now(), Listen: "0.0.0.0:6443", KubeletListen: "127.0.0.1:10250"}
	r.Name = g.link("", dir)
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	return r, cmd
}

func registry(t *testing.T) Registry {
	return Registry{Dirs: []string{filepath.Join(t.TempDir(), "knarr", "clusters")}, DefaultDataDir: filepath.Join(t.TempDir(), "none")}
}

func TestTheStateFollowsFromTheRecordAndTheProcess(t *testing.T) {
	g := registry(t)
	r, cmd := process(t, g, "a")
	loaded, err := Load(r.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if got := loaded.State(); got != Running {
		t.Errorf("a live process is %s", got)
	}
	loaded.Ready = time.Time{}
	if got := loaded.State(); got != Starting {
		t.Errorf("a live process that is not ready is %s", got)
	}
	reused := *loaded
	reused.Process = "other-boot 1"
	if got := reused.State(); got != Crashed {
		t.Errorf("a process with the pid of an earlier one is %s", got)
	}
	if !reused.Rebooted() || loaded.Rebooted() {
		t.Error("the boot's id does not show a restart of the machine")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if got := loaded.State(); got != Crashed {
		t.Errorf("a process that was killed is %s", got)
	}
	if err := loaded.Leave(nil, time.Now()); err != nil || loaded.State() != Stopped {
		t.Errorf("after a stop the state is %s, %v", loaded.State(), err)
	}
	if err := loaded.Leave(errors.New("no disk"), time.Now()); err != nil || loaded.State() != Failed || loaded.Cause != "no disk" {
		t.Errorf("after an error the state is %s, %v", loaded.State(), err)
	}
}

func TestAZombieCountsAsEnded(t *testing.T) {
	r, cmd := process(t, registry(t), "a")
	_ = cmd.Process.Kill()
	for deadline := time.Now().Add(time.Minute); r.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a zombie counts as alive")
		}
	}
}

func TestEveryUserMayReadTheRecord(t *testing.T) {
	r, _ := process(t, registry(t), "a")
	info, err := os.Stat(filepath.Join(r.DataDir, File))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the record's mode is %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.DataDir, ".*")); len(left) > 0 {
		t.Errorf("left beside the record: %v", left)
	}
}

func TestNamesAreUniqueAndStay(t *testing.T) {
	g := registry(t)
	a, _ := process(t, g, "data")
	b, _ := process(t, g, "data")
	if a.Name != "data" || !strings.HasPrefix(b.Name, "data-") {
		t.Fatalf("names are %q and %q", a.Name, b.Name)
	}
	if again := g.link(b.Name, b.DataDir); again != b.Name {
		t.Errorf("the name changes from %s to %s", b.Name, again)
	}
	list := g.List()
	if len(list) != 2 || list[0].DataDir != a.DataDir || list[1].DataDir != b.DataDir {
		t.Errorf("listed are %v", list)
	}
	if found, err := g.Find(b.Name); err != nil || found.DataDir != b.DataDir {
		t.Errorf("%s is %v, %v", b.Name, found, err)
	}
	if _, err := g.Find("nothing"); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "data, "+b.Name) {
		t.Errorf("an unknown name: %v", err)
	}
	// Removing a folder frees its name.
	if err := os.RemoveAll(a.DataDir); err != nil {
		t.Fatal(err)
	}
	c, _ := process(t, g, "data")
	if c.Name != "data" {
		t.Errorf("a third folder is named %s although the first one was removed", c.Name)
	}
}

func TestForgetRemovesTheLinkAndTheEmptyFolder(t *testing.T) {
	g := registry(t)
	a, _ := process(t, g, "a")
	b, _ := process(t, g, "b")
	if err := g.Forget(a.DataDir); err != nil {
		t.Fatal(err)
	}
	if list := g.List(); len(list) != 1 || list[0].Name != "b" {
		t.Errorf("listed are %v", list)
	}
	if err := g.Forget(b.DataDir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(g.Dirs[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of links is left: %v", err)
	}
}

func TestTheNextStartRemovesDeadLinks(t *testing.T) {
	g := registry(t)
	a, _ := process(t, g, "a")
	if err := os.RemoveAll(a.DataDir); err != nil {
		t.Fatal(err)
	}
	b := &Record{DataDir: t.TempDir(), Role: "server"}
	if err := g.Enter(b); err != nil {
		t.Fatal(err)
	}
	if names := links(g.Dirs[0]); len(names) != 1 || names[b.Name] != b.DataDir {
		t.Errorf("links are %v", names)
	}
}

func TestTheDefaultFolderIsListedWithoutALink(t *testing.T) {
	g := registry(t)
	r, _ := process(t, Registry{Dirs: []string{filepath.Join(t.TempDir(), "other")}}, "knarr")
	g.DefaultDataDir = r.DataDir
	if list := g.List(); len(list) != 1 || list[0].Name != "knarr" {
		t.Errorf("listed are %v", list)
	}
}

func TestEnterKeepsNameAndSettingsOfTheLastRun(t *testing.T) {
	g := registry(t)
	dir := t.TempDir()
	first := &Record{DataDir: dir, Role: "up", RunDir: "/run/x", CgroupRoot: "/x", Listen: "127.0.0.1:7443", NodeName: "n"}
	if err := g.Enter(first); err != nil {
		t.Fatal(err)
	}
	if !first.Alive() || first.PID != os.Getpid() {
		t.Errorf("this process is not in the record: %+v", first)
	}
	second := &Record{DataDir: dir, Role: "server", Listen: "127.0.0.1:8443"}
	if err := g.Enter(second); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Name != first.Name || loaded.RunDir != "/run/x" || loaded.CgroupRoot != "/x" || loaded.NodeName != "n" || loaded.Listen != "127.0.0.1:8443" {
		t.Errorf("the record is %+v", loaded)
	}
}

func TestAStartThatFailedIsNotRemembered(t *testing.T) {
	g := registry(t)
	dir := t.TempDir()
	good := &Record{DataDir: dir, Role: "up", Listen: "127.0.0.1:7443"}
	if err := g.Enter(good); err != nil {
		t.Fatal(err)
	}
	good.Ready = time.Now()
	if err := good.Leave(nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	bad := &Record{DataDir: dir, Role: "up", Listen: "192.0.2.1:6443", Flags: []string{"--max-pods=0"}}
	if err := g.Enter(bad); err != nil {
		t.Fatal(err)
	}
	if err := bad.Leave(errors.New("no such address"), time.Now()); err != nil {
		t.Fatal(err)
	}
	if r, err := Load(dir); err != nil || r.Listen != "127.0.0.1:7443" || len(r.Flags) > 0 || r.State() != Failed {
		t.Errorf("the record is %+v, %v", r, err)
	}
}

func TestAClusterRunsWithoutALink(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := Registry{Dirs: []string{filepath.Join(file, "clusters")}}
	r := &Record{DataDir: t.TempDir(), Role: "server"}
	if err := g.Enter(r); err != nil || r.Name != filepath.Base(r.DataDir) {
		t.Errorf("name %q, %v", r.Name, err)
	}
}

func TestListeningFindsTheClusterWithThePort(t *testing.T) {
	g := registry(t)
	r, cmd := process(t, g, "a")
	for address, want := range map[string]bool{
		"0.0.0.0:6443": true, "127.0.0.1:6443": true, "[::]:6443": true, "0.0.0.0:10250": true, "127.0.0.1:10250": true,
		"127.0.0.2:10250": false, "0.0.0.0:7443": false, "nonsense": false,
	} {
		if holder, found := g.Listening(address); found != want || found && holder.DataDir != r.DataDir {
			t.Errorf("%s: %v, %v", address, holder, found)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, found := g.Listening("0.0.0.0:6443"); found {
		t.Error("a process that has ended holds a port")
	}
}

func TestStopWaitsUntilTheProcessHasEnded(t *testing.T) {
	r, cmd := process(t, registry(t), "a")
	if err := r.Stop(t.Context(), time.Minute, func(time.Duration) {}); err != nil {
		t.Fatal(err)
	}
	if r.Alive() {
		t.Error("the process is alive")
	}
	_ = cmd.Wait()
	if err := r.Stop(t.Context(), time.Minute, func(time.Duration) {}); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
}

func TestStopNeverSignalsAnotherProcessWithTheSamePID(t *testing.T) {
	r, _ := process(t, registry(t), "a")
	other := *r
	other.Process = "other-boot 1"
	if err := other.Stop(t.Context(), time.Minute, func(time.Duration) {}); err != nil {
		t.Fatal(err)
	}
	if !r.Alive() {
		t.Error("the process was ended")
	}
}

func TestAProcessThatDoesNotEndIsAnError(t *testing.T) {
	r, _ := process(t, registry(t), "a")
	stubborn := exec.Command("sh", "-c", "trap '' TERM; echo; while :; do sleep 1000 & wait; done")
	stubborn.SysProcAttr = group
	out, err := stubborn.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stubborn.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killGroup(stubborn); _ = stubborn.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil { // from here on it ignores the signal
		t.Fatal(err)
	}
	r.PID = stubborn.Process.Pid
	if r.Process, err = Identity(r.PID); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(t.Context(), time.Millisecond, func(time.Duration) {}); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("error %v", err)
	}
}

func TestURLsOfAServer(t *testing.T) {
	for name, tt := range map[string]struct {
		record          Record
		here, elsewhere string
	}{
		"every address":    {Record{Role: "up", Listen: "0.0.0.0:6443", AdvertiseAddress: "192.0.2.1"}, "https://127.0.0.1:6443", "https://192.0.2.1:6443"},
		"one address":      {Record{Role: "up", Listen: "192.0.2.2:7443", AdvertiseAddress: "192.0.2.1"}, "https://192.0.2.2:7443", "https://192.0.2.2:7443"},
		"loopback alone":   {Record{Role: "server", Listen: "127.0.0.1:6443", AdvertiseAddress: "192.0.2.1"}, "https://127.0.0.1:6443", ""},
		"a lonely machine": {Record{Role: "up", Listen: "0.0.0.0:6443", AdvertiseAddress: "127.0.0.1"}, "https://127.0.0.1:6443", ""},
		"a worker":         {Record{Role: "node", Join: "https://192.0.2.1:6443"}, "https://192.0.2.1:6443", ""},
	} {
		if here, others := tt.record.URL(), tt.record.URLForOthers(); here != tt.here || others != tt.elsewhere {
			t.Errorf("%s: %q, %q", name, here, others)
		}
	}
}
