package cri

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
)

//go:embed embedded
var embedded embed.FS

// ErrNoRuntime: this binary was built without the runtime programs.
var ErrNoRuntime = errors.New("this knarr was built without the container runtime: build it with `make build`, or name another runtime's socket with --runtime-endpoint")

// program is one embedded file, as runtime/pack wrote it into the manifest.
type program struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Unpack puts the embedded runtime programs into dir/HASH and points dir/current at it, unless they are there already.
// It returns dir/current, a path that stays valid when a newer knarr unpacks newer programs: running shims find runc through it.
func Unpack(dir string) (string, error) {
	return unpack(embedded, dir)
}

// Program returns the content of one embedded program.
func Program(name string) ([]byte, error) {
	programs, _, err := manifest(embedded)
	if err != nil {
		return nil, err
	}
	for _, program := range programs {
		if program.Name == name {
			return expand(embedded, program)
		}
	}
	return nil, fmt.Errorf("embedded program %q: %w", name, fs.ErrNotExist)
}

func unpack(from fs.FS, dir string) (string, error) {
	programs, version, err := manifest(from)
	if err != nil {
		return "", err
	}
	current := filepath.Join(dir, "current")
	target := filepath.Join(dir, version)
	if !complete(target, programs) {
		if err := unpackInto(from, dir, target, programs); err != nil {
			return "", fmt.Errorf("unpack runtime programs into %s: %w", target, err)
		}
	}
	if link, err := os.Readlink(current); err == nil && link == version {
		return current, nil
	}
	temporary := current + ".tmp"
	_ = os.Remove(temporary)
	if err := os.Symlink(version, temporary); err != nil {
		return "", fmt.Errorf("unpack runtime programs: %w", err)
	}
	if err := os.Rename(temporary, current); err != nil {
		return "", fmt.Errorf("unpack runtime programs: %w", err)
	}
	return current, nil
}

// unpackInto fills a temporary folder and renames it, so that target is there whole or not at all.
func unpackInto(from fs.FS, dir, target string, programs []program) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(dir, ".unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	var group errgroup.Group
	for _, program := range programs {
		group.Go(func() error { return expandTo(from, program, filepath.Join(temporary, program.Name)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	return os.Rename(temporary, target)
}

// manifest lists the embedded programs; version is a name for exactly these.
func manifest(from fs.FS) (programs []program, version string, err error) {
	content, err := fs.ReadFile(from, "embedded/manifest.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", ErrNoRuntime
	}
	if err != nil {
		return nil, "", err
	}
	if err := json.Unmarshal(content, &programs); err != nil {
		return nil, "", fmt.Errorf("embedded manifest.json: %w", err)
	}
	sum := sha256.Sum256(content)
	return programs, hex.EncodeToString(sum[:])[:16], nil
}

// complete reports whether every program is in dir with its size. The folder came by a rename after all hashes matched, so
// only a crash of the machine before the pages were written can have hurt it, and that leaves short files.
func complete(dir string, programs []program) bool {
	for _, program := range programs {
		info, err := os.Stat(filepath.Join(dir, program.Name))
		if err != nil || info.Size() != program.Size || info.Mode().Perm()&0o100 == 0 {
			return false
		}
	}
	return true
}

func expandTo(from fs.FS, program program, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	sum := sha256.New()
	err = decompress(from, program, io.MultiWriter(file, sum))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return verify(program, sum)
}

func expand(from fs.FS, program program) ([]byte, error) {
	sum := sha256.New()
	content := &sliceWriter{buffer: make([]byte, 0, program.Size)}
	if err := decompress(from, program, io.MultiWriter(content, sum)); err != nil {
		return nil, err
	}
	return content.buffer, verify(program, sum)
}

func decompress(from fs.FS, program program, to io.Writer) error {
	packed, err := from.Open("embedded/" + program.Name + ".zst")
	if err != nil {
		return err
	}
	defer packed.Close()
	reader, err := zstd.NewReader(packed, zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("%s: %w", program.Name, err)
	}
	defer reader.Close()
	if _, err := reader.WriteTo(to); err != nil {
		return fmt.Errorf("%s: %w", program.Name, err)
	}
	return nil
}

func verify(program program, sum hash.Hash) error {
	if got := hex.EncodeToString(sum.Sum(nil)); got != program.SHA256 {
		return fmt.Errorf("%s: SHA-256 is %s, the manifest says %s", program.Name, got, program.SHA256)
	}
	return nil
}

// sliceWriter appends to a slice of known capacity.
type sliceWriter struct{ buffer []byte }

func (w *sliceWriter) Write(content []byte) (int, error) {
	w.buffer = append(w.buffer, content...)
	return len(content), nil
}
