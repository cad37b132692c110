package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// cniFolder is where libcni, inside container runtimes, caches the results of plugins. The path is
// not configurable.
const cniFolder = "/var/lib/cni"

// purgeResults removes libcni's cached results of this cluster's attachments, and the folders if
// they are empty then. It recognizes the cluster by the socket in the cached configuration.
func purgeResults(folder, socket string) error {
	results := filepath.Join(folder, "results")
	entries, err := os.ReadDir(results)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("CNI results: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(results, e.Name())
		if ours, err := isResultOf(path, socket); err != nil || !ours {
			errs = append(errs, err)
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	_ = os.Remove(results) // fails if the folder is not empty
	_ = os.Remove(folder)
	return errors.Join(errs...)
}

// isResultOf reports whether a plugin with this socket produced the cached result.
func isResultOf(path, socket string) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("CNI results: %w", err)
	}
	var result struct {
		Config []byte `json:"config"`
	}
	var list struct {
		Plugins []struct {
			SocketPath string `json:"socketPath"`
		} `json:"plugins"`
	}
	if json.Unmarshal(data, &result) != nil || json.Unmarshal(result.Config, &list) != nil {
		return false, nil // not in the format of our results
	}
	for _, p := range list.Plugins {
		if p.SocketPath == socket {
			return true, nil
		}
	}
	return false, nil
}
