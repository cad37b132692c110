package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"
)

// layer is an uncompressed layer whose content is generated on every read. Compression would only
// cost time, because the content goes through a local socket. write must write the same bytes each
// time.
type layer struct {
	write  func(io.Writer) error
	digest v1.Hash
	size   int64
}

// newLayer writes the layer once to learn digest and size.
func newLayer(write func(io.Writer) error) (*layer, error) {
	sum := sha256.New()
	counter := &countingWriter{to: sum}
	if err := write(counter); err != nil {
		return nil, err
	}
	digest := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
	return &layer{write: write, digest: digest, size: counter.count}, nil
}

func (l *layer) Digest() (v1.Hash, error)             { return l.digest, nil }
func (l *layer) DiffID() (v1.Hash, error)             { return l.digest, nil }
func (l *layer) Size() (int64, error)                 { return l.size, nil }
func (l *layer) MediaType() (types.MediaType, error)  { return types.OCIUncompressedLayer, nil }
func (l *layer) Uncompressed() (io.ReadCloser, error) { return l.Compressed() }
func (l *layer) Compressed() (io.ReadCloser, error) {
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(l.write(writer)) }()
	return reader, nil
}

type countingWriter struct {
	to    io.Writer
	count int64
}

func (w *countingWriter) Write(content []byte) (int, error) {
	n, err := w.to.Write(content)
	w.count += int64(n)
	return n, err
}

// entryRules control how files become entries of a layer.
type entryRules struct {
	// owner and times as on disk; otherwise zero, so that equal files give equal layers
	keepMeta bool
	uid, gid int         // without keepMeta
	mode     fs.FileMode // if not zero, the permissions of all files
}

// tree writes files and folders below one root into a tar. It reads through os.Root, so symlinks
// cannot lead out of the root.
type tree struct {
	root  *os.Root
	rules entryRules
	links map[[2]uint64]string // device and inode → first name, for hard links
	made  map[string]bool      // folders already written
}

// add writes source (relative to the root) as target, recursively.
func (t *tree) add(archive *tar.Writer, source, target string) error {
	info, err := t.root.Lstat(source)
	if err != nil {
		return err
	}
	if err := t.parents(archive, target); err != nil {
		return err
	}
	if target != "" {
		if err := t.entry(archive, source, target, info); err != nil {
			return err
		}
	}
	if !info.IsDir() {
		return nil
	}
	entries, err := fs.ReadDir(t.root.FS(), source) // sorted
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := t.add(archive, path.Join(source, entry.Name()), path.Join(target, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// parents writes the folders above target that have no entry yet, with mode 0755. A folder of the
// base image keeps its permissions, because every base uses 0755.
func (t *tree) parents(archive *tar.Writer, target string) error {
	for i, char := range target {
		if char != '/' || t.made[target[:i]] {
			continue
		}
		t.made[target[:i]] = true
		header := &tar.Header{Typeflag: tar.TypeDir, Name: target[:i] + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) entry(archive *tar.Writer, source, target string, info fs.FileInfo) error {
	header, err := t.header(source, target, info)
	if header == nil || err != nil {
		return err
	}
	if info.IsDir() {
		if t.made[target] {
			return nil
		}
		t.made[target] = true
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	file, err := t.root.Open(source)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(archive, file); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	return nil
}

// header returns nil for files that do not belong in an image: sockets, and devices, which the
// runtime makes.
func (t *tree) header(source, target string, info fs.FileInfo) (*tar.Header, error) {
	if info.Mode()&(fs.ModeSocket|fs.ModeDevice|fs.ModeCharDevice) != 0 {
		return nil, nil
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if link, err = t.root.Readlink(source); err != nil {
			return nil, err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return nil, err
	}
	header.Name, header.Format = target, tar.FormatPAX
	if info.IsDir() {
		header.Name += "/"
	}
	header.Uname, header.Gname = "", ""
	header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
	header.ModTime = header.ModTime.Truncate(time.Second)
	if !t.rules.keepMeta {
		header.Uid, header.Gid, header.ModTime = t.rules.uid, t.rules.gid, time.Unix(0, 0)
	}
	if t.rules.mode != 0 && header.Typeflag == tar.TypeReg {
		header.Mode = int64(t.rules.mode)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && header.Typeflag == tar.TypeReg {
		t.fileDetails(header, source, stat)
	}
	return header, nil
}

// fileDetails adds hard links and file capabilities.
func (t *tree) fileDetails(header *tar.Header, source string, stat *syscall.Stat_t) {
	if stat.Nlink > 1 {
		key := [2]uint64{uint64(stat.Dev), stat.Ino}
		if first, found := t.links[key]; found {
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
			return
		}
		t.links[key] = header.Name
	}
	file, err := t.root.Open(source)
	if err != nil {
		return // reading the content will report the error
	}
	defer file.Close()
	value := make([]byte, 64)
	if n, err := unix.Fgetxattr(int(file.Fd()), "security.capability", value); err == nil && n > 0 {
		header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": string(value[:n])}
	}
}

// source is a path below a root and its place in the image.
type source struct {
	from, to string
	rules    entryRules
}

// layerOf makes one layer of several sources below one folder.
func layerOf(folder string, sources []source) (*layer, error) {
	return newLayer(func(to io.Writer) error {
		root, err := os.OpenRoot(folder)
		if err != nil {
			return err
		}
		defer root.Close()
		archive := tar.NewWriter(to)
		made := map[string]bool{}
		for _, source := range sources {
			t := &tree{root: root, rules: source.rules, links: map[[2]uint64]string{}, made: made}
			if err := t.add(archive, source.from, strings.Trim(path.Clean("/"+source.to), "/")); err != nil {
				return err
			}
		}
		return errors.Join(archive.Close())
	})
}
