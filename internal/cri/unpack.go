package cri

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

//go:embed embedded
var embedded embed.FS

// ErrNoRuntime means that this binary was built without the runtime programs.
var ErrNoRuntime = errors.New("this knarr was built without the container runtime: build it with `make build`, or name another runtime's socket with --runtime-endpoint")

// program is one embedded file, as runtime/pack wrote it into the manifest.
type program struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Unpack unpacks the embedded runtime programs into dir/HASH and points dir/current at it, unless
// that has been done. It returns dir/current. The path stays valid when a newer knarr unpacks newer
// programs, so running shims find runc.
func Unpack(dir string) (string, error) {
	return unpack(embedded, dir)
}

// unpackPrefix begins the names of temporary folders.
const unpackPrefix = ".unpack-"

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

// unpackInto fills a temporary folder, syncs it to the disk and renames it, so that target is
// complete or missing.
func unpackInto(from fs.FS, dir, target string, programs []program) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Folders of starts that were killed. The caller's lock excludes another start.
	old, err := filepath.Glob(filepath.Join(dir, unpackPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	temporary, err := os.MkdirTemp(dir, unpackPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	if err := expandInto(from, temporary, programs); err != nil {
		return err
	}
	now, err := stateOf(temporary, programs)
	if err != nil {
		return err
	}
	if err := writeChecked(temporary, now); err != nil {
		return err
	}
	if err := syncFolder(temporary); err != nil {
		return err
	}
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	if err := os.Rename(temporary, target); err != nil {
		return err
	}
	return syncFolder(dir)
}

// manifest lists the embedded programs. version identifies exactly these programs.
func manifest(from fs.FS) (programs []program, version string, err error) {
	content, err := fs.ReadFile(from, "embedded/programs.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", ErrNoRuntime
	}
	if err != nil {
		return nil, "", err
	}
	if err := json.Unmarshal(content, &programs); err != nil {
		return nil, "", fmt.Errorf("embedded programs.json: %w", err)
	}
	sum := sha256.Sum256(content)
	return programs, hex.EncodeToString(sum[:])[:16], nil
}

// expandInto decompresses the archive, the concatenation of all programs, into files. The archive's
// window is as large as the archive, so it is decompressed in one piece. The memory is returned to
// the system at once, because the garbage collector would keep it.
func expandInto(from fs.FS, dir string, programs []program) error {
	archive, err := from.Open("embedded/programs.zst")
	if err != nil {
		return err
	}
	defer archive.Close()
	info, err := archive.Stat()
	if err != nil {
		return err
	}
	size := int64(0)
	for _, program := range programs {
		size += program.Size
	}
	memory, err := unix.Mmap(-1, 0, int(size+info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(memory) }()
	packed, content := memory[size:], memory[:0:size]
	if _, err := io.ReadFull(archive, packed); err != nil {
		return err
	}
	reader, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return err
	}
	defer reader.Close()
	if content, err = reader.DecodeAll(packed, content); err != nil {
		return fmt.Errorf("programs.zst: %w", err)
	}
	if int64(len(content)) != size {
		return fmt.Errorf("programs.zst: %d bytes, the manifest says %d", len(content), size)
	}
	var group errgroup.Group
	for _, program := range programs {
		own := content[:program.Size]
		content = content[program.Size:]
		group.Go(func() error { return write(filepath.Join(dir, program.Name), own, program) })
	}
	return group.Wait()
}

func write(path string, content []byte, program program) error {
	sum := sha256.Sum256(content)
	if got := hex.EncodeToString(sum[:]); got != program.SHA256 {
		return fmt.Errorf("%s: SHA-256 is %s, the manifest says %s", program.Name, got, program.SHA256)
	}
	return writeSynced(path, content)
}
