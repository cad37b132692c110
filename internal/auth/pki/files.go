package pki

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/durable"
)

// writeFile replaces a file atomically, readable by its owner alone. durably waits until it is on disk: needed for what
// can not be made again.
func writeFile(path string, data []byte, durably bool) error {
	if durably {
		return durable.WriteFile(path, data)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
