package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"crypto/rand"
	"encoding/hex"
)

const (
	volumesDir   = "volumes"
	snapshotsDir = "snapshots"
	stateFile    = "state.json"
)

// volume is a volume of the driver.
type volume struct {
	ID, Name   string
	Size       int64
	Block      bool
	Ephemeral  bool
	Created    time.Time
	Parameters map[string]string
	// SourceVolume and SourceSnapshot are the origin of its content.
	SourceVolume, SourceSnapshot string
	// Attached is the node that the volume is attached to, and ReadOnly how.
	Attached string
	ReadOnly bool
	// Staged and Published are the paths where the volume is in use.
	Staged, Published []string
}

// snapshot is a copy of a volume.
type snapshot struct {
	ID, Name, Volume string
	Size             int64
	Block            bool
	Created          time.Time
}

type state struct {
	Volumes   map[string]*volume
	Snapshots map[string]*snapshot
}

func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

func (d *Driver) load() error {
	d.state = state{Volumes: map[string]*volume{}, Snapshots: map[string]*snapshot{}}
	content, err := os.ReadFile(filepath.Join(d.StateDir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, &d.state); err != nil {
		return fmt.Errorf("%s: %w", stateFile, err)
	}
	return nil
}

func (d *Driver) save() error {
	content, err := json.Marshal(d.state)
	if err != nil {
		return err
	}
	path := filepath.Join(d.StateDir, stateFile)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// contentOf is the folder or file with the volume's content.
func (d *Driver) contentOf(id string) string { return filepath.Join(d.StateDir, volumesDir, id) }

// copyOf is the folder or file with the snapshot's content.
func (d *Driver) copyOf(id string) string { return filepath.Join(d.StateDir, snapshotsDir, id) }

// sorted returns the values of a map in the order of their keys.
func sorted[T any](m map[string]T) []T {
	var out []T
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[key])
	}
	return out
}

// used is the sum of the sizes of all volumes.
func (d *Driver) used() int64 {
	var sum int64
	for _, v := range d.state.Volumes {
		sum += v.Size
	}
	return sum
}

// make creates a volume with the content of a source: a path, or "".
func (d *Driver) make(v *volume, source string) error {
	path := d.contentOf(v.ID)
	if err := makeContent(path, v, source); err != nil {
		return errors.Join(err, os.RemoveAll(path))
	}
	d.state.Volumes[v.ID] = v
	return d.save()
}

// remove deletes a volume.
func (d *Driver) remove(v *volume) error {
	d.detachLoop(v.ID)
	if err := os.RemoveAll(d.contentOf(v.ID)); err != nil {
		return err
	}
	delete(d.state.Volumes, v.ID)
	return d.save()
}
