package snapshots

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// Opened is a snapshot of which each file can be read.
type Opened struct {
	// Database is the path of the plain database file.
	Database string
	// Manifest lists the files of an archive, which are below Files. It is nil for a database.
	Manifest *Manifest
	Files    string
	Sealed   bool
}

// Open opens the snapshot in a file. What it unpacks is in the work folder. keys may be nil.
func Open(path string, work *Work, keys *Keys) (*Opened, error) {
	o, err := open(path, work, keys)
	if err != nil {
		return nil, fmt.Errorf("open snapshot %s: %w", path, err)
	}
	return o, nil
}

func open(path string, work *Work, keys *Keys) (*Opened, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := &Opened{Database: path}
	in := bufio.NewReaderSize(f, 64<<10)
	start, err := in.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.HasPrefix(start, []byte(sealedStart)) {
		o.Sealed = true
		plain, err := keys.open(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(plain, 64<<10)
		if start, err = in.Peek(512); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	if isArchive(start) {
		return o, o.unpack(in, work)
	}
	if o.Sealed {
		o.Database = work.Path("opened")
		_, _, err := write(o.Database, func(w io.Writer) error { _, err := io.Copy(w, in); return err })
		return o, err
	}
	return o, nil // Check verifies its hash
}

// isArchive reports whether a file begins as a tar file with our manifest.
func isArchive(start []byte) bool {
	return len(start) == 512 && bytes.HasPrefix(start, []byte(manifestName+"\x00")) && string(start[257:262]) == "ustar"
}

func (o *Opened) unpack(in io.Reader, work *Work) error {
	dir, err := os.MkdirTemp(work.Dir, "opened-")
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if o.Manifest, err = readArchive(in, root); err != nil {
		return err
	}
	o.Files, o.Database = dir, dir+"/"+databaseName
	return nil
}

// Content restores the opened snapshot into a scratch store and reads it. It returns ErrDamaged if
// that is not what the manifest or the record says; record may be nil.
func (o *Opened) Content(ctx context.Context, work *Work, record *Record, log *slog.Logger) (Content, error) {
	c, err := Check(ctx, o.Database, work.Dir, log)
	if err != nil {
		return c, err
	}
	if o.Manifest != nil && o.Manifest.Content != c {
		return c, fmt.Errorf("%w: the restored store has %d keys at revision %d, the manifest %d at %d", ErrDamaged, c.Keys, c.Revision, o.Manifest.Content.Keys, o.Manifest.Content.Revision)
	}
	if record != nil && record.Content != c {
		return c, fmt.Errorf("%w: the restored store has %d keys at revision %d, the record %d at %d", ErrDamaged, c.Keys, c.Revision, record.Keys, record.Revision)
	}
	return c, nil
}
