package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAServerThatHasLostItsStoreDoesNotBeginAnEmptyCluster(t *testing.T) {
	dir := t.TempDir()
	s, stop := startServer(t, dir, nil)
	stop()
	lost := filepath.Join(dir, "etcd")
	if err := os.Rename(lost, lost+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(lost, "member", "wal"), 0o700); err != nil {
		t.Fatal(err) // a folder without a log has no data either
	}
	_, err := s.openEmbedded(t.Context())
	if err == nil {
		t.Fatal("a new store was made")
	}
	for _, want := range []string{"the store in " + lost + " is lost", "pki (ca.key, sa.key)", "knarr snapshot restore", "knarr server --join URL", "delete " + filepath.Join(dir, "version")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if files, err := filepath.Glob(filepath.Join(lost, "member", "wal", "*")); err != nil || len(files) > 0 {
		t.Errorf("the folder has changed: %v %v", files, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "snapshots", "one"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.openEmbedded(t.Context()); err == nil || !strings.Contains(err.Error(), "--at newest "+filepath.Join(dir, "snapshots")) {
		t.Errorf("the snapshots are not named: %v", err)
	}

	// The store that was moved away, and an empty cluster on request.
	if err := os.Rename(lost, lost+".empty"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(lost+".moved", lost); err != nil {
		t.Fatal(err)
	}
	_, stop = startServer(t, dir, nil)
	stop()
	for _, name := range []string{"etcd", "version"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	_, stop = startServer(t, dir, nil)
	stop()
}
