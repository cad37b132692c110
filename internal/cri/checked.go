package cri

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// checkedFile is the record that a folder's programs had the right hashes. Reading all programs
// takes 40 ms, so it happens once for each boot and after a file has changed.
const checkedFile = ".checked"

// checked is the content of checkedFile.
type checked struct {
	Boot  string            `json:"boot"`
	Files map[string]string `json:"files"` // the state of each program's file
}

// complete reports whether dir has every program with the right content.
func complete(dir string, programs []program) bool {
	now, err := stateOf(dir, programs)
	if err != nil {
		return false
	}
	var known checked
	if content, err := os.ReadFile(filepath.Join(dir, checkedFile)); err == nil && json.Unmarshal(content, &known) == nil && same(known, now) {
		return true
	}
	var group errgroup.Group
	for _, p := range programs {
		group.Go(func() error { return verify(filepath.Join(dir, p.Name), p) })
	}
	if group.Wait() != nil {
		return false
	}
	// Without the record the next start checks again.
	_ = writeChecked(dir, now)
	return true
}

func same(a, b checked) bool {
	if a.Boot != b.Boot || len(a.Files) != len(b.Files) {
		return false
	}
	for name, state := range a.Files {
		if b.Files[name] != state {
			return false
		}
	}
	return true
}

// stateOf returns the state of the programs' files: inode, size and times. A write changes the time
// of change, which no program can set.
func stateOf(dir string, programs []program) (checked, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return checked{}, err
	}
	now := checked{Boot: strings.TrimSpace(string(boot)), Files: map[string]string{}}
	for _, p := range programs {
		info, err := os.Lstat(filepath.Join(dir, p.Name))
		if err != nil {
			return checked{}, err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !info.Mode().IsRegular() || info.Size() != p.Size || info.Mode().Perm()&0o100 == 0 {
			return checked{}, fmt.Errorf("%s is cut or no program", p.Name)
		}
		now.Files[p.Name] = fmt.Sprint(stat.Ino, info.Size(), stat.Mtim.Nano(), stat.Ctim.Nano())
	}
	return now, nil
}

// verify compares a file with the manifest.
func verify(path string, p program) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != p.SHA256 {
		return fmt.Errorf("%s: SHA-256 is %s, the manifest says %s", p.Name, got, p.SHA256)
	}
	return nil
}

func writeChecked(dir string, now checked) error {
	content, err := json.Marshal(now)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, checkedFile)
	if err := os.WriteFile(path+".tmp", content, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// writeSynced writes a program to the disk.
func writeSynced(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncFolder syncs the names in a folder to the disk.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
