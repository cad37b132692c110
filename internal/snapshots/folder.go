package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/failpoint"
)

// Folder is a place on a file system: the path of the folder, made when needed.
type Folder string

var _ Place = Folder("")

func (d Folder) String() string        { return string(d) }
func (d Folder) At(name string) string { return filepath.Join(string(d), name) }

// List returns the snapshots; a missing folder has none.
func (d Folder) List(ctx context.Context) ([]Entry, error) {
	files, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var entries []Entry
	for _, f := range files {
		if !f.Type().IsRegular() || !IsName(f.Name()) {
			continue
		}
		e, err := d.Get(ctx, f.Name())
		if errors.Is(err, ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	sortByTime(entries)
	return entries, nil
}

// Get returns one snapshot's entry.
func (d Folder) Get(_ context.Context, name string) (Entry, error) {
	info, err := os.Stat(d.At(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, fmt.Errorf("%w: there is no file %s", ErrNotFound, d.At(name))
	}
	if err != nil {
		return Entry{}, fmt.Errorf("snapshot: %w", err)
	}
	if !info.Mode().IsRegular() {
		return Entry{}, fmt.Errorf("snapshot: %s is no file", d.At(name))
	}
	e := Entry{Name: name, Size: info.Size(), Modified: info.ModTime()}
	data, err := readSmall(d.At(name) + recordEnding)
	if err == nil {
		e.Record, e.Problem = decodeRecord(bytes.NewReader(data), name)
	} else if !errors.Is(err, fs.ErrNotExist) {
		e.Problem = err
	}
	return e, nil
}

// Put moves the file into the folder.
func (d Folder) Put(_ context.Context, t *Taken) error {
	if err := d.put(t); err != nil {
		return fmt.Errorf("keep %s: %w", d.At(t.Record.Name), err)
	}
	return nil
}

func (d Folder) put(t *Taken) error {
	record, err := t.Record.encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	path := d.At(t.Record.Name)
	// A record of an older file of this name would not fit.
	if err := os.Remove(path + recordEnding); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = os.Rename(t.Path, path)
	if errors.Is(err, unix.EXDEV) {
		err = copyInto(t.Path, path)
	}
	if err != nil {
		return err
	}
	t.Path = path
	if err := durable.SyncFolder(string(d)); err != nil {
		return err
	}
	failpoint.Here("snapshot-named")
	return durable.WriteFile(path+recordEnding, record)
}

// copyInto copies a file of another file system and names it when it is whole.
func copyInto(from, path string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	work, err := NewWork(filepath.Dir(path))
	if err != nil {
		return err
	}
	_, _, err = write(work.Path("copy"), func(w io.Writer) error { _, err := io.Copy(w, in); return err })
	if err == nil {
		err = os.Rename(work.Path("copy"), path)
	}
	return errors.Join(err, work.Close())
}

// Open reads a snapshot's file.
func (d Folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(d.At(name))
}

// Remove removes the file first: a record alone is not listed.
func (d Folder) Remove(_ context.Context, name string) error {
	for _, path := range []string{d.At(name), d.At(name) + recordEnding} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove snapshot: %w", err)
		}
	}
	return nil
}

// Tidy removes records without a snapshot, and what killed processes have left: work folders and
// unfinished records.
func (d Folder) Tidy(context.Context) error {
	removeAbandoned(string(d))
	files, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	present := map[string]bool{}
	for _, f := range files {
		present[f.Name()] = true
	}
	var errs []error
	for _, f := range files {
		name, isRecord := strings.CutSuffix(f.Name(), recordEnding)
		if isRecord && IsName(name) && !present[name] {
			errs = append(errs, os.Remove(d.At(f.Name())))
		}
		if unfinished, ok := strings.CutPrefix(f.Name(), "."); ok {
			if name, _, ok := strings.Cut(unfinished, recordEnding+"-"); ok && IsName(name) {
				durable.RemoveAbandoned(d.At(name) + recordEnding)
			}
		}
	}
	return errors.Join(errs...)
}
