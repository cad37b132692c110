package adopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// copyMember copies etcd's data to to/member. etcd cannot start on the source meanwhile.
func (m *machine) copyMember(ctx context.Context, dataDir, to string) (err error) {
	lock, err := m.lockDatabase(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	var names []string
	var size int64
	for _, part := range []string{"snap", "wal"} {
		dir := path.Join(dataDir, "member", part)
		entries, err := fs.ReadDir(m.root.FS(), below(dir))
		if err != nil {
			return m.explain(dir, err)
		}
		if len(entries) > maxMembers {
			return fmt.Errorf("%s has more than %d files", m.host(dir), maxMembers)
		}
		for _, e := range entries {
			name := e.Name()
			if name != "db" && !strings.HasSuffix(name, ".snap") && !strings.HasSuffix(name, ".wal") {
				continue // half of a file, or a preallocated one
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			names, size = append(names, path.Join(part, name)), size+info.Size()
		}
		if err := os.MkdirAll(filepath.Join(to, "member", part), 0o700); err != nil {
			return err
		}
	}
	// The copy, a snapshot of it and the new store.
	if err := room(to, 3*size); err != nil {
		return err
	}
	for _, name := range names {
		if err := m.copyFile(ctx, path.Join(dataDir, "member", name), filepath.Join(to, "member", name)); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) copyFile(ctx context.Context, from, to string) error {
	in, err := m.open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for err == nil && ctx.Err() == nil {
		_, err = io.CopyN(out, in, 16<<20)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, ctx.Err(), out.Close())
}

// room returns an error if the file system of a folder has fewer free bytes.
func room(dir string, bytes int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < bytes {
		return fmt.Errorf("%s has %d MiB free, %d MiB are needed", dir, free>>20, bytes>>20+1)
	}
	return nil
}

// syncTree syncs all files and folders below dir to disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return nil
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
