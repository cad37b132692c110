package snapshots

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/version"
)

// VersionFile is the file in the data folder that names the knarr that last wrote the store.
const VersionFile = "version"

// Writer identifies a knarr that writes a store.
type Writer struct {
	Knarr  string `json:"knarr"`
	Commit string `json:"commit"`
}

// CurrentWriter is this program.
func CurrentWriter() Writer {
	b := version.Current()
	return Writer{Knarr: b.Knarr, Commit: b.Commit}
}

func (w Writer) String() string {
	if len(w.Commit) >= 12 {
		return w.Knarr + "-" + w.Commit[:12]
	}
	return w.Knarr
}

// BeforeName is the name, without its ending, of the snapshot that is kept before the first start
// of w.
func (w Writer) BeforeName() string {
	safe := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r == '+' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, w.String())
	return PrefixUpgrade + safe
}

// Written says which knarr writes a store since when, and which one did before.
type Written struct {
	By    Writer    `json:"by"`
	Since time.Time `json:"since"`
	// Before is the version that wrote the store before, and Snapshot what was kept of its state.
	// A new store has neither.
	Before   *Writer `json:"before,omitempty"`
	Snapshot string  `json:"snapshot,omitempty"`
}

// ReadWritten reads the note of a data folder. It returns nil if there is none.
func ReadWritten(dataDir string) (*Written, error) {
	path := filepath.Join(dataDir, VersionFile)
	data, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := &Written{}
	if err := json.Unmarshal(data, w); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// Write writes the note by a function of package durable.
func (w *Written) Write(dataDir string, write func(path string, data []byte) error) error {
	data, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return err
	}
	return write(filepath.Join(dataDir, VersionFile), append(data, '\n'))
}
