// Command pack compresses files for embedding: pack OUTDIR FILE... writes OUTDIR/NAME.zst for each, skipping what is newer
// than its source, and OUTDIR/manifest.json with the size and SHA-256 of every uncompressed file.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// entry is one program in the manifest; internal/cri reads it.
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
	if err := os.MkdirAll(outDir, 0o755); err != nil {
		return err
	}
	var manifest []entry
	var plain, packed int64
	for _, file := range files {
		packedEntry, size, err := pack(outDir, file)
		if err != nil {
			return err
		}
		manifest = append(manifest, packedEntry)
		plain, packed = plain+packedEntry.Size, packed+size
	}
	content, err := json.MarshalIndent(manifest, "", "\t")
	if err != nil {
		return err
	}
	fmt.Printf("runtime: %d programs, %.1f MB, %.1f MB compressed\n", len(files), float64(plain)/1e6, float64(packed)/1e6)
	return replace(filepath.Join(outDir, "manifest.json"), append(content, '\n'))
}

// pack compresses one file and returns its manifest entry and its compressed size.
func pack(outDir, file string) (entry, int64, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return entry{}, 0, err
	}
	source, err := os.Stat(file)
	if err != nil {
		return entry{}, 0, err
	}
	sum := sha256.Sum256(content)
	made := entry{Name: filepath.Base(file), Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	target := filepath.Join(outDir, made.Name+".zst")
	if done, err := os.Stat(target); err == nil && !done.ModTime().Before(source.ModTime()) {
		return made, done.Size(), nil
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20))
	if err != nil {
		return entry{}, 0, err
	}
	compressed := encoder.EncodeAll(content, nil)
	return made, int64(len(compressed)), replace(target, compressed)
}

// replace writes the file whole or not at all.
func replace(path string, content []byte) error {
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
