package run

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
)

// Keep the tests' clusters out of the machine's list.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "knarr-run-")
	if err != nil {
		panic(err)
	}
	here = func() clusters.Registry {
		return clusters.Registry{Dirs: []string{filepath.Join(dir, "clusters")}, DefaultDataDir: filepath.Join(dir, "none")}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// lifeParams returns parameters with a data folder that does not exist yet.
func lifeParams(t *testing.T) Params {
	t.Helper()
	c := config.Default()
	top := t.TempDir()
	c.DataDir, c.RunDir = filepath.Join(top, "data"), filepath.Join(top, "run")
	return Params{Config: &c, Log: slog.New(slog.DiscardHandler)}
}

var errBroken = errors.New("it is broken")

func TestAFailedFirstStartLeavesNothing(t *testing.T) {
	p := lifeParams(t)
	start := func(p Params) error {
		for _, dir := range []string{p.Config.Path("pki"), p.Config.Path("etcd", "member"), filepath.Join(p.Config.RunDir, "s")} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		return errBroken
	}
	if err := p.locked("up", 0, start); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	for _, dir := range []string{p.Config.DataDir, p.Config.RunDir} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	for _, r := range here().List() {
		if r.DataDir == p.Config.DataDir {
			t.Errorf("it is listed: %v", r)
		}
	}
	// An existing empty folder stays.
	if err := os.MkdirAll(p.Config.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.locked("up", 0, start); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(p.Config.DataDir); err != nil || len(left) > 0 {
		t.Errorf("in the existing folder: %v, %v", left, err)
	}
}

func TestAFailedStartKeepsIrreplaceableFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(t *testing.T, c *config.Config)
		during func(t *testing.T, c *config.Config)
	}{
		"existing files":          {before: func(t *testing.T, c *config.Config) { touch(t, c.Path("manifests", "a.yaml")) }},
		"a certificate of a join": {during: func(t *testing.T, c *config.Config) { touch(t, c.Path("pki", "node.pem")) }},
		"containers": {during: func(t *testing.T, c *config.Config) {
			touch(t, filepath.Join(c.RunDir, "runc", "k8s.io", "id", "state.json"))
		}},
		"keys known to a store": {during: func(t *testing.T, c *config.Config) {
			c.StoreEndpoints = []string{"http://127.0.0.1:1"}
			touch(t, c.Path("pki", "ca.crt"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := lifeParams(t)
			if tt.before != nil {
				tt.before(t, p.Config)
			}
			err := p.locked("up", 0, func(p Params) error {
				if tt.during != nil {
					tt.during(t, p.Config)
				}
				return errBroken
			})
			if !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
			r, err := clusters.Load(p.Config.DataDir)
			if err != nil || r.State() != clusters.Failed || !strings.Contains(r.Cause, "it is broken") {
				t.Errorf("the record is %+v, %v", r, err)
			}
		})
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheRecordFollowsTheProcess(t *testing.T) {
	p := lifeParams(t)
	p.Detached, p.Flags = true, []string{"--max-pods=5"}
	p.Config.NodeName, p.Config.CgroupRoot = "n", "/x"
	load := func() *clusters.Record {
		r, err := clusters.Load(p.Config.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	held := false
	p.Held = func() error { held = true; return nil }
	err := p.locked("up", 0, func(p Params) error {
		if r := load(); !held || r.State() != clusters.Starting || r.RunDir != p.Config.RunDir || r.CgroupRoot != "/x" || r.NodeName != "n" || !r.Detached || len(r.Flags) != 1 {
			t.Errorf("at the start: %+v", r)
		}
		p.Ready()
		if r := load(); r.State() != clusters.Running {
			t.Errorf("ready: %+v", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := load(); r.State() != clusters.Stopped || r.PID != 0 || r.RunDir != p.Config.RunDir {
		t.Errorf("at the end: %+v", r)
	}
}

func TestASecondProcessOnAFolderIsRefusedAndNamesTheFirst(t *testing.T) {
	p := lifeParams(t)
	err := p.locked("server", 0, func(p Params) error {
		return p.locked("up", 0, func(Params) error { t.Error("two processes run on one folder"); return nil })
	})
	if !errors.Is(err, errLocked) {
		t.Fatal(err)
	}
	for _, part := range []string{"another knarr (`knarr server`, process ", "since 20", p.Config.DataDir, "knarr stop data"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
}

func TestATokenIsValidatedOnlyIfNeeded(t *testing.T) {
	p := lifeParams(t)
	if err := validateJoin(p.Config); err == nil || !strings.Contains(err.Error(), "--token-file is missing") {
		t.Errorf("no token: %v", err)
	}
	p.Config.Token = "a.b.c"
	if err := validateJoin(p.Config); err == nil || !strings.Contains(err.Error(), "ID.SECRET.CAHASH") {
		t.Errorf("half a token: %v", err)
	}
	for _, name := range []string{"node.pem", "node.crt"} {
		p := lifeParams(t)
		touch(t, p.Config.Path("pki", name))
		if err := validateJoin(p.Config); err != nil {
			t.Errorf("a machine that has joined, by %s: %v", name, err)
		}
	}
}

func TestAComponentBesideOthersKeepsTheirRecord(t *testing.T) {
	p := lifeParams(t)
	p.Config.CgroupRoot = "/x"
	err := p.locked("apiserver", 0, func(p Params) error {
		return p.beside("kubelet", func() error {
			r, err := clusters.Load(p.Config.DataDir)
			if err != nil || r.Role != "apiserver" || r.CgroupRoot != "/x" || r.RunDir != p.Config.RunDir {
				t.Errorf("the record is %+v, %v", r, err)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.beside("kubelet", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if r, err := clusters.Load(p.Config.DataDir); err != nil || r.Role != "kubelet" || r.State() != clusters.Stopped {
		t.Errorf("the record is %+v, %v", r, err)
	}
}

func TestPurgeRefusesAForeignFolder(t *testing.T) {
	top := t.TempDir()
	for name, tt := range map[string]struct {
		files []string
		fine  bool
	}{
		"nothing":               {nil, true},
		"a home":                {[]string{"letters/a.txt"}, false},
		"a home with a bin":     {[]string{"bin/tool", "letters/a.txt"}, false},
		"a cluster":             {[]string{clusters.File, "anything"}, true},
		"one of an older knarr": {[]string{lockFile, "anything"}, true},
		"a half removed one":    {[]string{"etcd/member/wal/0", "containerd/x"}, true},
	} {
		dir := filepath.Join(top, name)
		for _, file := range tt.files {
			touch(t, filepath.Join(dir, file))
		}
		if err := Purgeable(dir); (err == nil) != tt.fine || err != nil && !errors.Is(err, ErrNotOurs) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheErrorForAMissingSnapshotNamesIt(t *testing.T) {
	p := lifeParams(t)
	_, err := RestoreSnapshot(t.Context(), p.Config, Restore{Source: "nope.db", Now: time.Now()}, p.Log)
	if err == nil || !strings.Contains(err.Error(), "there is no file nope.db") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(p.Config.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a data folder was made: %v", err)
	}
}
