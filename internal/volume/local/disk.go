package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/failpoint"
)

// Names below a volume's folder.
const (
	recordFile = "volume.json"
	dataDir    = "data"
	diskFile   = "disk"
	mountDir   = "mount"
	// lockFile of a folder is locked by the process that uses it.
	lockFile = ".lock"
	// Prefixes of volumes that are not complete, or no longer.
	making   = ".new-"
	removing = ".old-"
	// maxRecord bounds a record. Nothing but this package writes there; a damaged disk may.
	maxRecord = 4096
)

// record is what a node knows of a volume on its disk.
type record struct {
	// UID is the PersistentVolume's.
	UID     string `json:"uid"`
	Kind    Kind   `json:"kind"`
	Bytes   int64  `json:"bytes"`
	Project uint32 `json:"project,omitempty"`
	// Used is true from the first time that a pod mounts the volume. Until then it has no data.
	Used bool `json:"used,omitempty"`
}

// wanted is a volume as its PersistentVolume describes it.
type wanted struct {
	name  string
	uid   string
	kind  Kind
	bytes int64
}

func wantedOf(v *corev1.PersistentVolume) wanted {
	size := v.Spec.Capacity[corev1.ResourceStorage]
	return wanted{name: v.Name, uid: string(v.UID), kind: Kind(v.Annotations[KindAnnotation]), bytes: size.Value()}
}

// disk is a place for volumes: one folder of the node.
type disk struct{ path string }

func (d disk) at(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

// parseRecord reads volume.json.
func parseRecord(data []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if !r.Kind.Known() || r.Bytes < 0 {
		return nil, fmt.Errorf("kind %q with %d bytes is no volume of this provisioner", r.Kind, r.Bytes)
	}
	return &r, nil
}

// read returns the record of a volume; the error is fs.ErrNotExist if there is none.
func (d disk) read(name string) (*record, error) {
	f, err := os.OpenFile(d.at(name, recordFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, maxRecord)
	n, err := f.Read(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	r, err := parseRecord(data[:n])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return r, nil
}

func (d disk) write(folder string, r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Replace(d.at(folder, recordFile), data)
}

// names returns the volumes of the folder, and the remains of interrupted steps.
func (d disk) names() (volumes, remains []string, err error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case !e.IsDir():
		case strings.HasPrefix(name, making), strings.HasPrefix(name, removing):
			remains = append(remains, name)
		case !strings.HasPrefix(name, "."):
			volumes = append(volumes, name)
		}
	}
	return volumes, remains, nil
}

// make makes a volume, or grows it. A repeated call returns the same volume.
func (d disk) make(ctx context.Context, w wanted) error {
	have, err := d.read(w.name)
	switch {
	case err == nil && have.UID == w.uid:
		return d.grow(ctx, w, have)
	case err == nil && have.Used:
		return fmt.Errorf("%s has the data of another PersistentVolume with the UID %s", d.at(w.name), have.UID)
	case err == nil:
		if err := d.remove(w.name); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if w.kind == Image && w.bytes < leastImage {
		w.bytes = leastImage
	}
	if w.bytes, err = inBlocks(w.bytes); err != nil {
		return err
	}
	folder := making + w.name
	if err := d.clear(folder); err != nil {
		return err
	}
	if err := d.fill(ctx, folder, w); err != nil {
		return errors.Join(err, d.clear(folder))
	}
	failpoint.Here("local-made")
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Rename(folder, w.name); err != nil {
		return err
	}
	return durable.SyncFolder(d.path)
}

// inBlocks rounds a size up to whole blocks.
func inBlocks(size int64) (int64, error) {
	if size > math.MaxInt64-blockSize {
		return 0, fmt.Errorf("%d bytes are more than a disk can have", size)
	}
	return (size + blockSize - 1) / blockSize * blockSize, nil
}

// fill makes the content of a volume's folder.
func (d disk) fill(ctx context.Context, folder string, w wanted) error {
	top, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}
	defer top.Close()
	if err := top.Mkdir(folder, 0o700); err != nil {
		return err
	}
	root, err := top.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	r := &record{UID: w.uid, Kind: w.kind, Bytes: w.bytes}
	switch w.kind {
	case Plain:
		err = dataFolder(root)
	case Quota:
		if err = dataFolder(root); err == nil {
			r.Project, err = limitFolder(d.at(folder, dataDir), w.name, w.bytes)
		}
	case Image:
		err = d.fillImage(ctx, root, folder, w.bytes)
	case Block:
		err = makeDisk(root, diskFile, w.bytes)
	default:
		err = fmt.Errorf("kind %q: allowed are %s, %s, %s and %s", w.kind, Plain, Quota, Image, Block)
	}
	if err != nil {
		return err
	}
	return d.write(folder, r)
}

// dataFolder makes the folder that pods mount. Its parents keep other users out.
func dataFolder(root *os.Root) error {
	if err := root.Mkdir(dataDir, 0o777); err != nil {
		return err
	}
	return root.Chmod(dataDir, 0o777) // whatever the umask is
}

// fillImage makes a file system with a data folder: pods do not see lost+found, which programs such
// as initdb refuse.
func (d disk) fillImage(ctx context.Context, root *os.Root, folder string, size int64) error {
	if err := makeDisk(root, diskFile, size); err != nil {
		return err
	}
	if err := format(ctx, d.at(folder, diskFile)); err != nil {
		return err
	}
	if err := root.Mkdir(mountDir, 0o700); err != nil {
		return err
	}
	at := d.at(folder, mountDir)
	if err := mountImage(d.at(folder, diskFile), at); err != nil {
		return err
	}
	inside, err := os.OpenRoot(at)
	if err == nil {
		err = dataFolder(inside)
		_ = inside.Close()
	}
	failpoint.Here("local-formatted")
	// A plain unmount writes everything, and fails if it could not.
	return errors.Join(err, unix.Unmount(at, unix.UMOUNT_NOFOLLOW))
}

// grow enlarges a volume while pods use it. A volume never shrinks.
func (d disk) grow(ctx context.Context, w wanted, r *record) error {
	if w.bytes <= r.Bytes {
		return nil
	}
	var err error
	if w.bytes, err = inBlocks(w.bytes); err != nil {
		return err
	}
	switch r.Kind {
	case Quota:
		err = setLimit(d.at(w.name, dataDir), r.Project, w.bytes)
	case Image:
		err = d.growImage(ctx, w)
	case Block:
		err = growDisk(d.at(w.name, diskFile), w.bytes)
	case Plain: // its size is a number only
	}
	if err != nil {
		return err
	}
	r.Bytes = w.bytes
	return d.write(w.name, r)
}

func (d disk) growImage(ctx context.Context, w wanted) error {
	file, dir := d.at(w.name, diskFile), d.at(w.name, mountDir)
	err := growImage(file, dir, w.bytes)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	if used, inUseErr := inUse(w.name); used || inUseErr != nil {
		return errors.Join(errors.New("without CAP_SYS_RESOURCE, the volume grows only while no pod uses it"), inUseErr)
	}
	return growUnmounted(ctx, file, dir, w.bytes)
}

// prepare attaches a volume and returns what pods mount: a folder, or a device for Block.
func (d disk) prepare(name string) (string, error) {
	r, err := d.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the volume's folder %s is missing on this node; is its disk mounted?", d.at(name))
	}
	if err != nil {
		return "", err
	}
	if !r.Used {
		r.Used = true
		if err := d.write(name, r); err != nil {
			return "", err
		}
	}
	switch r.Kind {
	case Image:
		if err := mountImage(d.at(name, diskFile), d.at(name, mountDir)); err != nil {
			return "", err
		}
		return d.at(name, mountDir, dataDir), nil
	case Block:
		return ensureAttached(d.at(name, diskFile))
	case Plain, Quota:
	}
	return d.at(name, dataDir), nil
}

// used returns the bytes that a volume with an enforced size uses of its folder.
func (d disk) used(name string, r *record) int64 {
	var n int64
	switch r.Kind {
	case Quota:
		n = projectUsage(d.at(name, dataDir), r.Project)
	case Image, Block:
		var stat unix.Stat_t
		if unix.Lstat(d.at(name, diskFile), &stat) == nil {
			n = stat.Blocks * sector
		}
	case Plain:
	}
	return min(n, r.Bytes)
}

// gone reports whether nothing is left of a volume.
func (d disk) gone(name string) (bool, error) {
	for _, folder := range []string{name, removing + name, making + name} {
		if _, err := os.Lstat(d.at(folder)); err == nil {
			return false, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return true, nil
}

// remove removes a volume with its content.
func (d disk) remove(name string) error {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := d.clear(removing + name); err != nil {
		return err
	}
	// A mount or a loop device keeps working under the new name, and clear ends it.
	if err := root.Rename(name, removing+name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	failpoint.Here("local-removing")
	return errors.Join(d.clear(removing+name), d.clear(making+name))
}

// clear removes a folder with its mounts and its loop device. Links in it are removed, not
// followed.
func (d disk) clear(folder string) error {
	if _, err := os.Lstat(d.at(folder)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unmountAll(d.at(folder)); err != nil {
		return err
	}
	if err := detach(d.at(folder, diskFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r, _ := d.read(folder)
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the volume %s: %w", d.at(folder), err)
	}
	if r != nil && r.Kind == Quota {
		_ = setLimit(d.path, r.Project, 0) // an unused limit harms nobody
	}
	return nil
}
