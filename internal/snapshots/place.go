package snapshots

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Place keeps snapshots by name.
type Place interface {
	// List returns the snapshots, oldest first.
	List(ctx context.Context) ([]Entry, error)
	// Get returns one snapshot's entry. It returns ErrNotFound if there is none.
	Get(ctx context.Context, name string) (Entry, error)
	// Put stores a snapshot under its record's name, then the record. A list has the snapshot
	// either whole or not at all. An older snapshot of that name is replaced.
	Put(ctx context.Context, t *Taken) error
	// Open reads a snapshot's file.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Remove removes a snapshot and its record. A missing one is no error.
	Remove(ctx context.Context, name string) error
	// Tidy removes what killed processes have left.
	Tidy(ctx context.Context) error
	// String names the place, or with At a snapshot in it.
	String() string
	At(name string) string
}

// ErrNotFound means that a place has no snapshot of that name.
var ErrNotFound = errors.New("there is no such snapshot")

// Entry is a snapshot in a place.
type Entry struct {
	Name     string
	Size     int64
	Modified time.Time
	Record   *Record // nil if there is none
	Problem  error   // why the record cannot be used
}

// Good reports whether the snapshot was checked, and has the size that was checked.
func (e Entry) Good() bool {
	return e.Record != nil && e.Problem == nil && !e.Record.Checked.IsZero() && e.Record.Size == e.Size
}

// Time is when the snapshot was taken, as its record, its name or its file says.
func (e Entry) Time() time.Time {
	if e.Record != nil {
		return e.Record.Taken
	}
	if at := timeOfName(e.Name); !at.IsZero() {
		return at
	}
	return e.Modified
}

func sortByTime(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int {
		if c := a.Time().Compare(b.Time()); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// Newest returns the newest good snapshot taken at or before a time. A zero time means any.
func Newest(entries []Entry, at time.Time) (Entry, bool) {
	for _, e := range slices.Backward(entries) {
		if e.Good() && (at.IsZero() || !e.Time().After(at)) {
			return e, true
		}
	}
	return Entry{}, false
}

// Find returns the place that a word names, and the snapshot in it or "". The word is a file, a
// folder, s3://BUCKET/PREFIX, s3://BUCKET/PREFIX/NAME, or s3:// for the configured bucket.
func Find(word string, s3 S3Options) (Place, string, error) {
	if rest, ok := strings.CutPrefix(word, "s3://"); ok {
		return findS3(rest, s3)
	}
	path, err := filepath.Abs(word)
	if err != nil {
		return nil, "", err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() || err != nil && strings.HasSuffix(word, "/") {
		return Folder(path), "", nil
	}
	return Folder(filepath.Dir(path)), filepath.Base(path), nil
}

// Fetch returns the path of a snapshot's file on this machine: in its folder, or downloaded into
// the work folder. It verifies the record's hash, if there is a record.
func Fetch(ctx context.Context, place Place, name string, work *Work) (string, *Record, error) {
	e, err := place.Get(ctx, name)
	if err != nil {
		return "", nil, err
	}
	if e.Problem != nil {
		return "", nil, fmt.Errorf("%s: %w", place.At(name), e.Problem)
	}
	path, local := "", false
	if folder, ok := place.(Folder); ok {
		path, local = folder.At(name), true
		if e.Record == nil {
			return path, nil, nil
		}
	}
	in, err := place.Open(ctx, name)
	if err != nil {
		return "", nil, err
	}
	defer in.Close()
	var sum string
	var size int64
	if local {
		hash := sha256.New()
		size, err = io.Copy(hash, in)
		sum = hex.EncodeToString(hash.Sum(nil))
	} else {
		if err := room(work.Dir, e.Size); err != nil {
			return "", nil, fmt.Errorf("download %s: %w", place.At(name), err)
		}
		path = work.Path("fetched")
		sum, size, err = write(path, func(w io.Writer) error { _, err := io.Copy(w, in); return err })
	}
	if err != nil {
		return "", nil, fmt.Errorf("read %s: %w", place.At(name), err)
	}
	if e.Record != nil && (sum != e.Record.SHA256 || size != e.Record.Size) {
		return "", nil, fmt.Errorf("%s: %w: it has %d bytes with the SHA-256 %.12s, its record %d with %.12s", place.At(name), ErrDamaged, size, sum, e.Record.Size, e.Record.SHA256)
	}
	return path, e.Record, nil
}
