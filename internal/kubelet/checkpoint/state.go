package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/knarr-project/knarr/internal/durable"
)

// LoadState reads the state of a manager in upstream's layout, which decode knows. It returns nil
// if there is no file. The manager's name begins the error, whose end says how to go on.
func LoadState[S any](path, manager string, decode func(raw []byte) (*S, error)) (*S, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s state: %w", manager, err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s state: %w", manager, err)
	}
	var s *S
	if err = checkSize(raw); err == nil {
		s, err = decode(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("%s state %s: %w; drain the node and remove the file", manager, path, err)
	}
	return s, nil
}

// SaveState replaces the file without waiting for the disk.
func SaveState(path, manager string, raw []byte) error {
	err := checkSize(raw)
	if err == nil {
		err = durable.Replace(path, raw)
	}
	if err != nil {
		return fmt.Errorf("write the %s's state: %w", manager, err)
	}
	return nil
}

func checkSize(raw []byte) error {
	if len(raw) > MaxSize {
		return fmt.Errorf("the file has more than %d bytes", MaxSize)
	}
	return nil
}
