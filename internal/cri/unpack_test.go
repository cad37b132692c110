package cri

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
)

// packed makes an embedded folder like runtime/pack does.
func packed(t *testing.T, contents map[string]string) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	var programs []program
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range contents {
		sum := sha256.Sum256([]byte(content))
		programs = append(programs, program{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
		files["embedded/"+name+".zst"] = &fstest.MapFile{Data: encoder.EncodeAll([]byte(content), nil)}
	}
	manifest, err := json.Marshal(programs)
	if err != nil {
		t.Fatal(err)
	}
	files["embedded/manifest.json"] = &fstest.MapFile{Data: manifest}
	return files
}

func TestUnpackKeepsWhatIsThereAndRepairsWhatIsNot(t *testing.T) {
	dir := t.TempDir()
	files := packed(t, map[string]string{"runc": "one", "shim": "two"})
	current, err := unpack(files, dir)
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(filepath.Join(current, "runc"))
	if err != nil {
		t.Fatal(err)
	}
	if first.Mode().Perm() != 0o755 {
		t.Errorf("runc has mode %v, want 0755", first.Mode().Perm())
	}
	if _, err := unpack(files, dir); err != nil {
		t.Fatal(err)
	}
	if second, _ := os.Stat(filepath.Join(current, "runc")); !os.SameFile(first, second) {
		t.Error("a complete folder was unpacked again")
	}
	if err := os.WriteFile(filepath.Join(current, "shim"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(files, dir); err != nil {
		t.Fatal(err)
	}
	if content, _ := os.ReadFile(filepath.Join(current, "shim")); string(content) != "two" {
		t.Errorf("a cut file was not repaired: %q", content)
	}
}

func TestUnpackOfANewerVersionMovesCurrentAndLeavesTheOldPathUsable(t *testing.T) {
	dir := t.TempDir()
	current, err := unpack(packed(t, map[string]string{"runc": "old"}), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(packed(t, map[string]string{"runc": "new"}), dir); err != nil {
		t.Fatal(err)
	}
	if content, _ := os.ReadFile(filepath.Join(current, "runc")); string(content) != "new" {
		t.Errorf("current/runc is %q, want the new one", content)
	}
}

func TestUnpackRefusesAProgramThatIsNotWhatTheManifestSays(t *testing.T) {
	dir := t.TempDir()
	files := packed(t, map[string]string{"runc": "good"})
	files["embedded/runc.zst"] = packed(t, map[string]string{"runc": "evil"})["embedded/runc.zst"]
	if _, err := unpack(files, dir); err == nil {
		t.Fatal("no error")
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, ".unpack-*"))
	if len(left)+len(hidden) != 0 {
		t.Errorf("left behind: %v %v", left, hidden)
	}
}

func TestUnpackWithoutProgramsSaysHowToGetThem(t *testing.T) {
	if _, err := unpack(fstest.MapFS{}, t.TempDir()); !errors.Is(err, ErrNoRuntime) {
		t.Fatalf("error is %v, want ErrNoRuntime", err)
	}
}

func TestProgramIsTheSameAsUnpacked(t *testing.T) {
	content, err := Program("pause")
	if errors.Is(err, ErrNoRuntime) {
		t.Skip("built without the runtime programs")
	}
	if err != nil {
		t.Fatal(err)
	}
	current, err := Unpack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(current, "pause"))
	if err != nil || !bytes.Equal(file, content) {
		t.Errorf("unpacked pause differs (error %v)", err)
	}
}
