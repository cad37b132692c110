package cri

import (
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

// packed returns an embedded folder as runtime/pack makes it.
func packed(t *testing.T, contents map[string]string) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	var programs []program
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for name, content := range contents {
		sum := sha256.Sum256([]byte(content))
		programs = append(programs, program{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
		all = append(all, content...)
	}
	manifest, err := json.Marshal(programs)
	if err != nil {
		t.Fatal(err)
	}
	files["embedded/programs.zst"] = &fstest.MapFile{Data: encoder.EncodeAll(all, nil)}
	files["embedded/programs.json"] = &fstest.MapFile{Data: manifest}
	return files
}

func TestUnpackKeepsCompleteFoldersAndRepairsOthers(t *testing.T) {
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

func TestUnpackRepairsAFlippedByte(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(t *testing.T, folder string)
	}{
		{"after the file was written to", func(*testing.T, string) {}},
		{"after a boot", func(t *testing.T, folder string) {
			// Damage of the disk leaves the times alone; the next boot reads the content.
			now, err := stateOf(folder, []program{{Name: "runc", Size: 8}})
			if err != nil {
				t.Fatal(err)
			}
			now.Boot = "an earlier boot"
			if err := writeChecked(folder, now); err != nil {
				t.Fatal(err)
			}
		}},
		{"without a record", func(t *testing.T, folder string) {
			if err := os.Remove(filepath.Join(folder, checkedFile)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			files := packed(t, map[string]string{"runc": "contents"})
			current, err := unpack(files, dir)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(current, "runc")
			if err := os.WriteFile(path, []byte("c0ntents"), 0o755); err != nil {
				t.Fatal(err)
			}
			folder, err := filepath.EvalSymlinks(current)
			if err != nil {
				t.Fatal(err)
			}
			c.before(t, folder)
			if _, err := unpack(files, dir); err != nil {
				t.Fatal(err)
			}
			if content, _ := os.ReadFile(path); string(content) != "contents" {
				t.Errorf("runc is %q", content)
			}
		})
	}
}

func TestUnpackRemovesTheFoldersOfKilledStarts(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, unpackPrefix+"123"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(packed(t, map[string]string{"runc": "one"}), dir); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, unpackPrefix+"*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
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

func TestUnpackRefusesAnArchiveThatDiffersFromTheManifest(t *testing.T) {
	for name, other := range map[string]map[string]string{
		"another program": {"runc": "evil"},
		"a longer one":    {"runc": "good and more"},
		"a shorter one":   {"runc": "g"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := packed(t, map[string]string{"runc": "good"})
			files["embedded/programs.zst"] = packed(t, other)["embedded/programs.zst"]
			if _, err := unpack(files, dir); err == nil {
				t.Fatal("no error")
			}
			left, _ := filepath.Glob(filepath.Join(dir, "*"))
			hidden, _ := filepath.Glob(filepath.Join(dir, ".unpack-*"))
			if len(left)+len(hidden) != 0 {
				t.Errorf("left behind: %v %v", left, hidden)
			}
		})
	}
}

func TestUnpackWithoutProgramsNamesTheRemedy(t *testing.T) {
	if _, err := unpack(fstest.MapFS{}, t.TempDir()); !errors.Is(err, ErrNoRuntime) {
		t.Fatalf("error is %v, want ErrNoRuntime", err)
	}
}

func TestEmbeddedProgramsMatchTheManifest(t *testing.T) {
	if _, err := Unpack(t.TempDir()); err != nil && !errors.Is(err, ErrNoRuntime) {
		t.Fatal(err)
	}
}
