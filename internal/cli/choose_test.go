package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
)

// stopped returns the record of a stopped cluster in a new folder.
func stopped(t *testing.T, change func(r *clusters.Record)) *clusters.Record {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "harbour")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &clusters.Record{DataDir: dir, Name: "harbour", Role: "up", Started: time.Now(), Stopped: time.Now(), Listen: "127.0.0.1:7443"}
	if change != nil {
		change(r)
	}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestACommandUsesTheDataFoldersRecord(t *testing.T) {
	r := stopped(t, func(r *clusters.Record) {
		r.RunDir, r.CgroupRoot, r.NodeName, r.Join = "/run/other", "/x", "n", "https://192.0.2.1:6443"
	})
	for name, tt := range map[string]struct {
		command string
		args    []string
		want    [4]string // run folder, cgroup, listen, join
	}{
		"nothing is given":   {"up", nil, [4]string{"/run/other", "/x", "127.0.0.1:7443", ""}},
		"a flag wins":        {"up", []string{"--listen", "0.0.0.0:6443", "--cgroup-root", "/y"}, [4]string{"/run/other", "/y", "0.0.0.0:6443", ""}},
		"a node joins again": {"node", nil, [4]string{"/run/other", "/x", "127.0.0.1:7443", "https://192.0.2.1:6443"}},
	} {
		s := newSettings()
		cmd := &cobra.Command{Use: tt.command}
		s.addFlags(cmd, config.Process|config.Server|config.Node|config.Joining)
		if err := cmd.ParseFlags(append([]string{"--data-dir", r.DataDir}, tt.args...)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.complete(cmd); err != nil {
			t.Fatal(err)
		}
		if got := [4]string{s.RunDir, s.CgroupRoot, s.Listen, s.Join}; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if len(tt.args) == 0 && !strings.Contains(strings.Join(s.remembered, " "), "--listen 127.0.0.1:7443") {
			t.Errorf("%s: remembered is %q", name, s.remembered)
		}
	}
}

func TestTheErrorForAFolderWithoutAClusterNamesTheReason(t *testing.T) {
	empty := t.TempDir()
	for name, tt := range map[string]struct {
		args []string
		dir  string
		want string
	}{
		"a missing folder":   {nil, filepath.Join(empty, "nope"), "there is no such folder"},
		"a folder of others": {nil, empty, "the folder holds none"},
		"as an argument":     {[]string{empty}, "", "the folder holds none"},
		"an unknown name":    {[]string{"no-such-cluster-name"}, "", "no cluster has the name \"no-such-cluster-name\""},
	} {
		_, err := targetCluster(tt.args, tt.dir, tt.dir != "")
		if !errors.Is(err, clusters.ErrNone) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := stopped(t, nil)
	for _, args := range [][]string{nil, {r.DataDir}} {
		found, err := targetCluster(args, r.DataDir, args == nil)
		if err != nil || found.DataDir != r.DataDir {
			t.Errorf("%v: %v, %v", args, found, err)
		}
	}
	if _, err := targetCluster([]string{"a"}, "b", true); err == nil || !strings.Contains(err.Error(), "not both") {
		t.Errorf("a name and a folder: %v", err)
	}
}

func TestTheErrorForAMissingServerNamesTheReason(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(r *clusters.Record)
		want   string
	}{
		"a stopped one": {nil, "Start it with `knarr up --data-dir"},
		"a worker":      {func(r *clusters.Record) { r.Role, r.Join = "node", "https://192.0.2.1:6443" }, "it is a worker of https://192.0.2.1:6443"},
		"a failed one":  {func(r *clusters.Record) { r.Cause = "no disk" }, "no disk"},
	} {
		c := config.Default()
		c.DataDir = stopped(t, tt.change).DataDir
		if err := serverHere(&c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := config.Default()
	c.DataDir = filepath.Join(t.TempDir(), "nope")
	if err := serverHere(&c); !errors.Is(err, clusters.ErrNone) {
		t.Errorf("no folder: %v", err)
	}
}

func TestTheStartCommandIsAValidCommandLine(t *testing.T) {
	r := stopped(t, func(r *clusters.Record) { r.Detached, r.Flags = true, []string{"--max-pods=5", "--tls-san=a b"} })
	if got, want := startCommand(r), "knarr up --data-dir "+r.DataDir+" --detach --max-pods=5 '--tls-san=a b'"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
