// Command pack compresses files for embedding. `pack OUTDIR FILE...` writes the concatenated files
// into OUTDIR/programs.zst, and the size and SHA-256 of each into OUTDIR/programs.json. In a single
// archive, libraries that several programs share are stored once. Pack executes zstd, because Go's
// encoders do not support its higher levels.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// The compression window covers the whole archive, so that copies of a library are found across
// programs.
const (
	windowLog = 26
	window    = 1 << windowLog
)

// entry is one program in the manifest, which internal/cri reads.
type entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pack OUTDIR FILE...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(outDir string, files []string) error {
	scratch, err := os.MkdirTemp("", "knarr-pack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	plain := filepath.Join(scratch, "programs")
	manifest, size, err := join(plain, files)
	if err != nil {
		return err
	}
	if size > window {
		return fmt.Errorf("the programs have %d bytes together, more than the window of %d: take a larger one here and where they are unpacked", size, window)
	}
	content, err := json.MarshalIndent(manifest, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(outDir, 0o755); err != nil {
		return err
	}
	// Write into the same folder, so that the rename below stays within one file system. The
	// temporary name is not embedded.
	archive := filepath.Join(outDir, ".programs.part")
	defer os.Remove(archive)
	command := exec.Command("zstd", "-q", "-f", "-19", fmt.Sprintf("--long=%d", windowLog), plain, "-o", archive)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	packed, err := os.Stat(archive)
	if err != nil {
		return err
	}
	if err := removeOld(outDir); err != nil {
		return err
	}
	if err := os.Rename(archive, filepath.Join(outDir, "programs.zst")); err != nil {
		return err
	}
	fmt.Printf("runtime: %d programs, %.1f MB, %.1f MB compressed\n", len(files), float64(size)/1e6, float64(packed.Size())/1e6)
	return replace(filepath.Join(outDir, "programs.json"), append(content, '\n'))
}

// replace writes a file atomically.
func replace(path string, content []byte) error {
	part := filepath.Join(filepath.Dir(path), ".manifest.part")
	defer os.Remove(part)
	if err := os.WriteFile(part, content, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// removeOld removes the results of earlier runs. Everything of ours in the folder would be
// embedded.
func removeOld(dir string) error {
	for _, pattern := range []string{"*.zst", "*.json"} {
		old, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range old {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// join concatenates the files and returns the manifest, in order, and the total size.
func join(path string, files []string) (manifest []entry, size int64, err error) {
	joined, err := os.Create(path)
	if err != nil {
		return nil, 0, err
	}
	defer joined.Close()
	for _, file := range files {
		made, err := appendTo(joined, file)
		if err != nil {
			return nil, 0, err
		}
		manifest, size = append(manifest, made), size+made.Size
	}
	return manifest, size, joined.Close()
}

func appendTo(joined io.Writer, file string) (entry, error) {
	source, err := os.Open(file)
	if err != nil {
		return entry{}, err
	}
	defer source.Close()
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(joined, sum), source)
	return entry{Name: filepath.Base(file), Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
}
