// Package checkpoint keeps state of the node agent in a file with a checksum. The file is replaced
// atomically, so a kill or a power failure leaves the old or the new state.
//
// The layout is upstream's: an object with Data and Checksum. The checksum is FNV-1a of the bytes
// of Data, which differs from upstream's. LoadState and SaveState are for files whose layout is
// upstream's in full.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/durable"
)

// MaxSize limits a file. The state of a node with thousands of devices stays far below.
const MaxSize = 16 << 20

type file struct {
	Data     json.RawMessage
	Checksum uint64
}

func checksum(data []byte) uint64 {
	h := fnv.New64a()
	h.Write(data)
	return h.Sum64()
}

// Write replaces the file. It returns when the file is on disk.
func Write(path string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	content, err := json.Marshal(file{Data: raw, Checksum: checksum(raw)})
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	if len(content) > MaxSize {
		return fmt.Errorf("checkpoint %s: %d bytes are more than %d", path, len(content), MaxSize)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	return durable.WriteFile(path, content)
}

// Read reads the file into data. The error of a file that does not exist is os.ErrNotExist.
func Read(path string, data any) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil {
		err = Parse(raw, data)
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	return nil
}

// Parse reads the content of a file into data.
func Parse(raw []byte, data any) error {
	if err := checkSize(raw); err != nil {
		return err
	}
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return err
	}
	if sum := checksum(f.Data); sum != f.Checksum {
		return fmt.Errorf("the checksum is %d, the file says %d", sum, f.Checksum)
	}
	return json.Unmarshal(f.Data, data)
}
