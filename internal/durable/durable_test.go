package durable

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileIsReplacedAndNothingElseIsLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	for _, content := range []string{"one", "two, which is longer", ""} {
		if err := WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("the file holds %q, %v", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v %v", info.Mode(), err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestAFailedWriteKeepsTheOldContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	// A file cannot replace a folder.
	if err := os.MkdirAll(filepath.Join(path, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(string, []byte) error{"WriteFile": WriteFile, "Replace": Replace} {
		err := write(path, []byte("x"))
		if err == nil {
			t.Fatalf("%s: a folder was replaced by a file", name)
		}
		if strings.Contains(err.Error(), "already closed") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s contains more than the cause: %v", name, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
