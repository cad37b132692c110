package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// hostPath checks that the host's path has the type that the volume requires, and creates it for
// the OrCreate types.
func hostPath(source *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	if err := makeHostPath(source.Path, kind); err != nil {
		return err
	}
	if kind == corev1.HostPathUnset {
		return nil
	}
	info, err := os.Stat(source.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	is := func(want fs.FileMode) bool { return err == nil && info.Mode().Type() == want }
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		return typeCheck(is(fs.ModeDir), source.Path, "a directory")
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		return typeCheck(is(0), source.Path, "a file")
	case corev1.HostPathSocket:
		return typeCheck(is(fs.ModeSocket), source.Path, "a socket file")
	case corev1.HostPathCharDev:
		return typeCheck(is(fs.ModeDevice|fs.ModeCharDevice), source.Path, "a character device")
	case corev1.HostPathBlockDev:
		return typeCheck(is(fs.ModeDevice), source.Path, "a block device")
	}
	return fmt.Errorf("%s is an invalid volume type", kind)
}

func typeCheck(ok bool, path, want string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("hostPath type check failed: %s is not %s", path, want)
}

// makeHostPath creates a missing folder or file for the OrCreate types.
func makeHostPath(path string, kind corev1.HostPathType) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // the path exists or is inaccessible; the type check reports it
	}
	switch kind {
	case corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(path, 0o755)
	case corev1.HostPathFileOrCreate:
		file, err := os.OpenFile(path, os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		return file.Close()
	}
	return nil
}
