package upgrade

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/version"
)

// machines are the ELF machines of Go's architectures that knarr is built for.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// Inspect returns what a file is: a knarr for this machine. It runs `FILE version`, so the file
// has to be the administrator's own, or its hash has to be verified before.
func Inspect(ctx context.Context, path string) (Program, error) {
	p := Program{}
	info, err := os.Stat(path)
	if err != nil {
		return p, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxProgram {
		return p, fmt.Errorf("%s is not usable: a program file of at most %d MB", path, MaxProgram>>20)
	}
	if err := checkMachine(path); err != nil {
		return p, err
	}
	if p.SHA256, p.Size, err = Sum(path); err != nil {
		return p, err
	}
	if p.Build, err = buildOf(ctx, path); err != nil {
		return p, err
	}
	return p, p.Validate()
}

// checkMachine refuses a file that this machine cannot run, before it is run.
func checkMachine(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s is not a program of Linux: %w", path, err)
	}
	defer f.Close()
	if want := machines[runtime.GOARCH]; f.Machine != want {
		return fmt.Errorf("%s is for another machine: it is for %s, this one is %s", path, f.Machine, want)
	}
	return nil
}

// versionTimeout limits `FILE version`.
const versionTimeout = 30 * time.Second

// buildOf asks a program for its build.
func buildOf(ctx context.Context, path string) (version.Build, error) {
	var b version.Build
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	cmd := exec.CommandContext(ctx, path, "version", "-o", "json")
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.WaitDelay = time.Second
	var out bounded
	cmd.Stdout = &out
	err := cmd.Run()
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &b)
	}
	if err == nil && (b.Knarr == "" || b.Kubernetes == "") {
		err = errors.New("the answer names no version")
	}
	if err != nil {
		return b, fmt.Errorf("%s is not a knarr: `%s version -o json`: %w", path, filepath.Base(path), err)
	}
	return b, nil
}

// bounded keeps the first bytes of an output.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > MaxRequest {
		return 0, errors.New("the output is too long")
	}
	return b.Buffer.Write(p)
}

// Sum returns the SHA-256 of a file in hexadecimal, and its size.
func Sum(path string) (string, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(f, MaxProgram+1))
	if err == nil && n > MaxProgram {
		err = fmt.Errorf("%s is larger than %d MB", path, MaxProgram>>20)
	}
	return hex.EncodeToString(hash.Sum(nil)), n, err
}

// matches reports whether a file has the program's size and hash.
func (p Program) matches(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Size() != p.Size {
		return false
	}
	sum, _, err := Sum(path)
	return err == nil && sum == p.SHA256
}

// Replace puts a copy of a program in the place of another one, atomically, and returns when it is
// on disk. The mode of the replaced file stays.
func Replace(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	mode := os.FileMode(0o755)
	if info, err := os.Stat(to); err == nil {
		mode = info.Mode().Perm() | 0o100
	}
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+"-")
	if err != nil {
		return fmt.Errorf("replace %s: %w", to, err)
	}
	if _, err = f.ReadFrom(in); err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = durable.Publish(f, to)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return fmt.Errorf("replace %s: %w", to, err)
	}
	return nil
}

// Copy keeps a program under another name: as a link, or as a copy on another file system.
func Copy(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	err := os.Link(from, to)
	if err == nil || errors.Is(err, os.ErrExist) {
		return nil
	}
	return Replace(from, to)
}

// free returns the free bytes of a folder's file system, rounded down to 16 MiB.
func free(dir string) int64 {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0
	}
	return int64(s.Bavail) * s.Bsize >> 24 << 24 //nolint:gosec // a file system has less than 2^63 bytes
}

// Needed is the free space that a machine needs for a program: a fetched copy, the program beside
// the installed one, and the earlier one that is kept.
func (p Program) Needed() int64 { return 3*p.Size + 64<<20 }
