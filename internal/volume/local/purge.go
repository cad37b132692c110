package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/knarr-project/knarr/internal/durable"
)

// remember adds the agent's folders to its list of all folders that it ever used, for Purge.
func (a *Agent) remember() error {
	if a.List == "" {
		return nil
	}
	known, err := listed(a.List)
	if err != nil {
		return err
	}
	before := len(known)
	for _, path := range a.Folders {
		if !slices.Contains(known, path) {
			known = append(known, path)
		}
	}
	if len(known) == before {
		return nil
	}
	slices.Sort(known)
	data, err := json.Marshal(known)
	if err != nil {
		return err
	}
	return durable.Replace(a.List, data)
}

func listed(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	if err := json.Unmarshal(data, &paths); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return slices.DeleteFunc(paths, func(path string) bool { return !filepath.IsAbs(path) }), nil
}

// Purge removes all volumes of the folders in a list, with their mounts and loop devices. It leaves
// the folders themselves, and everything in them that is not a volume.
func Purge(list string) error {
	paths, err := listed(list)
	errs := []error{err}
	for _, path := range paths {
		d := disk{path}
		volumes, remains, err := d.names()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err)
		for _, name := range volumes {
			if _, err := d.read(name); err == nil {
				errs = append(errs, d.remove(name))
			}
		}
		for _, name := range remains {
			errs = append(errs, d.clear(name))
		}
		if err := os.Remove(d.at(lockFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
