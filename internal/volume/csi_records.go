package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/knarr-project/knarr/internal/durable"
)

const (
	csiPluginDir = "kubernetes.io~csi"
	csiDataFile  = "vol_data.json"
	// maxCSIData limits the size of a record.
	maxCSIData = 64 << 10
)

// csiData is the file beside a CSI volume that holds everything needed to unmount it. It exists
// from before the first call of the driver until after the last one. The format is upstream's; the
// last two fields are additions.
type csiData struct {
	SpecVolID     string                        `json:"specVolID"`
	VolumeHandle  string                        `json:"volumeHandle"`
	DriverName    string                        `json:"driverName"`
	NodeName      string                        `json:"nodeName"`
	AttachmentID  string                        `json:"attachmentID"`
	LifecycleMode storagev1.VolumeLifecycleMode `json:"volumeLifecycleMode"`
	Block         bool                          `json:"block,omitempty"`
	// Published means that the volume is completely mounted, its ownership included.
	Published bool `json:"published,omitempty"`
}

// volumeName is the volume's name in the node's status.
func (d csiData) volumeName() string {
	return "kubernetes.io/csi/" + d.DriverName + "^" + d.VolumeHandle
}

// csiRecords holds the records of all pods of the node, and those of staged volumes. It reads them
// from the disk at first use.
type csiRecords struct {
	rootDir string

	mu     sync.Mutex // guards what follows
	loaded bool
	byFile map[string]csiData // of pods
	staged map[string]csiData // by file, too
}

// load reads the records. The caller holds the lock.
func (r *csiRecords) load() {
	if r.loaded {
		return
	}
	r.loaded, r.byFile, r.staged = true, map[string]csiData{}, map[string]csiData{}
	read := func(into map[string]csiData, parts ...string) {
		files, _ := filepath.Glob(filepath.Join(append([]string{r.rootDir}, parts...)...))
		for _, file := range files {
			if data, err := readCSIData(file); err == nil {
				into[file] = data
			}
		}
	}
	read(r.byFile, "pods", "*", volumesDir, csiPluginDir, "*", csiDataFile)
	read(r.staged, "plugins", "kubernetes.io", "csi", "*", "*", csiDataFile)
	read(r.staged, "plugins", "kubernetes.io", "csi", devicesDir, "*", "data", csiDataFile)
}

// write stores a pod's record in the volume's folder.
func (r *csiRecords) write(dir string, data csiData) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	return writeCSIData(r.byFile, filepath.Join(dir, csiDataFile), data)
}

// stage stores the record of a staged volume.
func (r *csiRecords) stage(file string, data csiData) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	data.Published = false
	return writeCSIData(r.staged, file, data)
}

func writeCSIData(known map[string]csiData, file string, data csiData) error {
	if before, found := known[file]; found && before == data {
		return nil
	}
	content, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	if err := durable.Replace(file, content); err != nil {
		return err
	}
	known[file] = data
	return nil
}

// remove deletes a record of a pod or of a staged volume.
func (r *csiRecords) remove(file string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, staged := r.staged[file]; staged {
		// The folders are empty after the volume is unstaged.
		if dir := filepath.Dir(file); os.Remove(dir) == nil && filepath.Base(dir) == "data" {
			_ = os.Remove(filepath.Dir(dir))
		}
	}
	delete(r.byFile, file)
	delete(r.staged, file)
	return nil
}

// isStaged reports whether a staged volume has the record.
func (r *csiRecords) isStaged(file string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	_, found := r.staged[file]
	return found
}

// unused lists the staged volumes that no pod uses.
func (r *csiRecords) unused() []csiData {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	used := map[string]bool{}
	for _, data := range r.byFile {
		used[data.volumeName()] = true
	}
	var out []csiData
	for _, data := range r.staged {
		if !used[data.volumeName()] {
			out = append(out, data)
		}
	}
	return out
}

// usedByOthers reports whether another pod's record has the same volume.
func (r *csiRecords) usedByOthers(own string, data csiData) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	for file, other := range r.byFile {
		if file != own && other.DriverName == data.DriverName && other.VolumeHandle == data.VolumeHandle {
			return true
		}
	}
	return false
}

// attached lists the names of the volumes that need their attachment.
func (r *csiRecords) attached() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	var names []string
	for _, records := range []map[string]csiData{r.byFile, r.staged} {
		for _, data := range records {
			if data.AttachmentID != "" {
				names = append(names, data.volumeName())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func readCSIData(file string) (csiData, error) {
	opened, err := os.Open(file)
	if err != nil {
		return csiData{}, err
	}
	defer opened.Close()
	content, err := io.ReadAll(io.LimitReader(opened, maxCSIData+1))
	if err != nil {
		return csiData{}, err
	}
	data, err := parseCSIData(content)
	if err != nil {
		return csiData{}, fmt.Errorf("%s: %w", file, err)
	}
	return data, nil
}

func parseCSIData(content []byte) (csiData, error) {
	var data csiData
	if len(content) > maxCSIData {
		return data, fmt.Errorf("it is larger than %d bytes", maxCSIData)
	}
	if err := json.Unmarshal(content, &data); err != nil {
		return data, err
	}
	if err := checkDriverName(data.DriverName); err != nil {
		return data, err
	}
	if data.VolumeHandle == "" {
		return data, errors.New("volumeHandle is empty")
	}
	return data, nil
}
