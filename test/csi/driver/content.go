package driver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// makeContent creates the folder or file of a volume.
func makeContent(path string, v *volume, source string) error {
	if source != "" {
		if err := copyAll(source, path); err != nil {
			return fmt.Errorf("copy the source: %w", err)
		}
	}
	if !v.Block {
		if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if source == "" {
			return os.Chmod(path, 0o777)
		}
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Truncate(v.Size)
}

// copyAll copies a folder or file with modes and owners. It does not follow links.
func copyAll(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return copyOne(path, filepath.Join(to, relative), info)
	})
}

func copyOne(from, to string, info fs.FileInfo) error {
	switch info.Mode().Type() {
	case fs.ModeDir:
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
	case fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, to); err != nil {
			return err
		}
	case 0:
		if err := copyFile(from, to); err != nil {
			return err
		}
	default:
		return nil // sockets and pipes have no content
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(to, int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return nil
	}
	return os.Chmod(to, info.Mode())
}

// copyFile copies a file and leaves out blocks of zeros.
func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer target.Close()
	buffer, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	var size int64
	for {
		n, err := io.ReadFull(source, buffer)
		if n > 0 && string(buffer[:n]) != string(zeros[:n]) {
			if _, err := target.WriteAt(buffer[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return target.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}

// usage returns the bytes and the number of files below a folder.
func usage(dir string) (bytes, files int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += stat.Blocks * 512
			}
		}
		files++
		return nil
	})
	return bytes, files, err
}
