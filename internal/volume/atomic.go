package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// dataLink is the symlink whose one rename switches a projection from its old content to its new one.
const dataLink = "..data"

// file is one file of a projection.
type file struct {
	data []byte
	mode fs.FileMode
	uid  *int64 // nil: root
}

// payload is a projection's content by relative path.
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

// writeAtomic makes dir show exactly the payload. Readers see all of the old files or all of the new ones:
//
//	dir/..2026_01_02_15_04_05.123   the files
//	dir/..data                      → ..2026_01_02_15_04_05.123
//	dir/NAME                        → ..data/NAME, for each first path element
//
// own sets ownership on the new files before they can be seen.
func writeAtomic(dir string, content payload, now time.Time, own func(path string) error) error {
	for path := range content {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if old != "" && sameOnDisk(filepath.Join(dir, old), content) {
		return links(dir, content) // a crash may have come between the rename and the links
	}
	fresh, err := os.MkdirTemp(dir, now.UTC().Format("..2006_01_02_15_04_05.*"))
	if err != nil {
		return err
	}
	if err := fill(fresh, content, own); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	temporary := filepath.Join(dir, dataLink+"_tmp")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(fresh), temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, dataLink)); err != nil {
		return err
	}
	if err := links(dir, content); err != nil {
		return err
	}
	if old != "" {
		return os.RemoveAll(filepath.Join(dir, old))
	}
	return nil
}

// checkPath refuses what would leave the volume or hide behind the writer's own names.
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

// fill writes the files into a fresh folder.
func fill(dir string, content payload, own func(string) error) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for path, file := range content {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, file.data, file.mode); err != nil {
			return err
		}
		if err := os.Chmod(full, file.mode); err != nil { // the umask had its say
			return err
		}
		if file.uid != nil {
			if err := os.Chown(full, int(*file.uid), -1); err != nil {
				return err
			}
		}
	}
	if own == nil {
		return nil
	}
	return own(dir)
}

// links makes the names that users see and removes those that are no more.
func links(dir string, content payload) error {
	wanted := map[string]bool{}
	for path := range content {
		name, _, _ := strings.Cut(filepath.Clean(path), "/")
		wanted[name] = true
	}
	for name := range wanted {
		err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); !wanted[name] && !strings.HasPrefix(name, "..") {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameOnDisk reports whether the folder holds exactly these files with these contents. Modes are not compared: fsGroup adds to them.
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
		data, err := os.ReadFile(path)
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
