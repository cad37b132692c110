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

// csiRecords holds the records of all pods of the node. It reads them from the disk at first use.
type csiRecords struct {
	rootDir string

	mu     sync.Mutex // guards what follows
	loaded bool
	byFile map[string]csiData
}

// load reads the records. The caller holds the lock.
func (r *csiRecords) load() {
	if r.loaded {
		return
	}
	r.loaded, r.byFile = true, map[string]csiData{}
	files, _ := filepath.Glob(filepath.Join(r.rootDir, "pods", "*", volumesDir, csiPluginDir, "*", csiDataFile))
	for _, file := range files {
		if data, err := readCSIData(file); err == nil {
			r.byFile[file] = data
		}
	}
}

// write stores a record in the volume's folder.
func (r *csiRecords) write(dir string, data csiData) error {
	content, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	file := filepath.Join(dir, csiDataFile)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	if before, found := r.byFile[file]; found && before == data {
		return nil
	}
	if err := durable.Replace(file, content); err != nil {
		return err
	}
	r.byFile[file] = data
	return nil
}

// remove deletes a record.
func (r *csiRecords) remove(file string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(r.byFile, file)
	return nil
}

// usedByOthers reports whether another record has the same volume.
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

// persistent lists the names of the volumes that are not inline.
func (r *csiRecords) persistent() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
	var names []string
	for _, data := range r.byFile {
		if data.LifecycleMode == storagev1.VolumeLifecyclePersistent {
			names = append(names, data.volumeName())
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
