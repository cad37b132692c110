package network

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestPurgeRemovesCachedResultsOfThisClusterOnly(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cni")
	write := func(name, socket string) string {
		t.Helper()
		data, err := json.Marshal(map[string]any{"kind": "cniCacheV1", "config": []byte(`{"name":"knarr","plugins":[{"type":"knarr-cni","socketPath":"` + socket + `"}]}`)})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "results", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ours, theirs := write("knarr-1-eth0", "/run/knarr/a/cni.sock"), write("knarr-2-eth0", "/run/knarr/b/cni.sock")
	strange := filepath.Join(folder, "results", "strange")
	if err := os.WriteFile(strange, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	if err := purgeResults(folder, "/run/knarr/a/cni.sock"); err != nil {
		t.Fatal(err)
	}
	if exists(ours) || !exists(theirs) || !exists(strange) {
		t.Errorf("ours exists: %t, theirs: %t, unrelated file: %t", exists(ours), exists(theirs), exists(strange))
	}
	if err := os.Remove(strange); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, the folder does not exist
		if err := purgeResults(folder, "/run/knarr/b/cni.sock"); err != nil {
			t.Fatal(err)
		}
	}
	if exists(folder) {
		t.Error("the empty folder is left")
	}
}
