package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// dataLink is the symlink that a single rename switches from a projection's old content to its new
// content.
const dataLink = "..data"

// file is one file of a projection.
type file struct {
	data []byte
	mode fs.FileMode
	uid  *int64 // nil means root
}

// payload is a projection's content. Keys are relative paths.
type payload map[string]file

// equal compares content, modes and owners.
func (p payload) equal(other payload) bool {
	if len(p) != len(other) {
		return false
	}
	for path, one := range p {
		two, found := other[path]
		if !found || one.mode != two.mode || !bytes.Equal(one.data, two.data) || (one.uid == nil) != (two.uid == nil) || one.uid != nil && *one.uid != *two.uid {
			return false
		}
	}
	return true
}

// writeAtomic makes dir show exactly the payload. Readers see either all old files or all new ones:
//
//	dir/..2026_01_02_15_04_05.123   the files
//	dir/..data                      → ..2026_01_02_15_04_05.123
//	dir/NAME                        → ..data/NAME, for each first path element
//
// own sets the ownership of the new files before they become visible. Containers see the folder
// read-only, but a privileged container can change it. Therefore writeAtomic never follows a link
// out of the folder.
func writeAtomic(dir string, content payload, now time.Time, own func(path string) error) error {
	for path := range content {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	old, err := root.Readlink(dataLink)
	if err != nil || !isGeneration(old) {
		old = "" // no content yet, or a link that writeAtomic did not make
	}
	if old != "" && sameOnDisk(filepath.Join(dir, old), content) {
		return links(root, content) // a crash may have happened between the rename and the links
	}
	fresh, err := newGeneration(root, now)
	if err != nil {
		return err
	}
	if err := fill(root, fresh, content); err != nil {
		return errors.Join(err, root.RemoveAll(fresh))
	}
	if own != nil {
		if err := own(filepath.Join(dir, fresh)); err != nil {
			return errors.Join(err, root.RemoveAll(fresh))
		}
	}
	const temporary = dataLink + "_tmp"
	if err := root.RemoveAll(temporary); err != nil {
		return err
	}
	if err := root.Symlink(fresh, temporary); err != nil {
		return err
	}
	if err := root.Rename(temporary, dataLink); err != nil {
		return err
	}
	if err := links(root, content); err != nil {
		return err
	}
	if old != "" {
		return root.RemoveAll(old)
	}
	return nil
}

// isGeneration reports whether newGeneration can have made the name.
func isGeneration(name string) bool {
	return len(name) > 2 && strings.HasPrefix(name, "..") && !strings.Contains(name, "/") && name != dataLink && name != dataLink+"_tmp"
}

// newGeneration makes the folder for one generation of the files.
func newGeneration(root *os.Root, now time.Time) (string, error) {
	for {
		name := now.UTC().Format("..2006_01_02_15_04_05.") + strconv.FormatUint(uint64(rand.Uint32()), 10)
		if err := root.Mkdir(name, 0o700); !errors.Is(err, fs.ErrExist) {
			return name, err
		}
	}
}

// checkPath refuses paths that leave the volume or clash with the writer's own names.
func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("invalid path: must not be empty")
	case filepath.IsAbs(path):
		return fmt.Errorf("invalid path %q: must be relative", path)
	case strings.HasPrefix(path, ".."):
		return fmt.Errorf("invalid path %q: must not start with \"..\"", path)
	}
	for _, part := range strings.Split(path, "/") {
		if part == ".." {
			return fmt.Errorf("invalid path %q: must not contain \"..\"", path)
		}
	}
	return nil
}

// fill writes the files into a fresh folder of root.
func fill(root *os.Root, name string, content payload) error {
	dir, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	for path, file := range content {
		if err := dir.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := writeNew(dir, path, file); err != nil {
			return err
		}
	}
	return dir.Chmod(".", 0o755)
}

// writeNew writes one new file; it fails if the file exists.
func writeNew(dir *os.Root, path string, file file) error {
	out, err := dir.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(file.data)
	if err == nil {
		err = out.Chmod(file.mode)
	}
	if err == nil && file.uid != nil {
		err = out.Chown(int(*file.uid), -1)
	}
	return errors.Join(err, out.Close())
}

// links makes the names that users see and removes obsolete ones.
func links(root *os.Root, content payload) error {
	wanted := map[string]bool{}
	for path := range content {
		name, _, _ := strings.Cut(filepath.Clean(path), "/")
		wanted[name] = true
	}
	for name := range wanted {
		err := root.Symlink(filepath.Join(dataLink, name), name)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !wanted[name] && !strings.HasPrefix(name, "..") {
			if err := root.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameOnDisk reports whether the folder holds exactly these files with these contents. It does not
// compare modes, because fsGroup changes them.
func sameOnDisk(dir string, content payload) bool {
	count := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		file, found := content[relative]
		if !found {
			return fs.ErrNotExist
		}
		data, err := ReadBeneath(dir, relative, int64(len(file.data)))
		if err != nil {
			return err
		}
		if !bytes.Equal(data, file.data) {
			return fs.ErrNotExist
		}
		count++
		return nil
	})
	return err == nil && count == len(content)
}
