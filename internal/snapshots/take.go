package snapshots

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/knarr-project/knarr/internal/failpoint"
)

// Request tells what to take.
type Request struct {
	// Name is the snapshot's name without its ending.
	Name string
	// Stream writes the store's database, as store.Snapshotter does.
	Stream func(ctx context.Context, w io.Writer) error
	// Content returns what the running store holds at a revision. If nil, the restored content is
	// not compared with it.
	Content func(ctx context.Context, revision int64) (Content, error)
	// WithKeys makes an archive with the files Keys.
	WithKeys bool
	Keys     []KeyFile
	// Seal encrypts the snapshot; nil does not.
	Seal *Keys
	// Server and Version are for the record.
	Server, Version string
	Now             func() time.Time
	Log             *slog.Logger
}

// Taken is a checked snapshot that is in no place yet.
type Taken struct {
	Record Record
	Path   string // of the file in the work folder
}

// Take writes a snapshot in the work folder and checks it: it is restored into a scratch store,
// which must hold what the running store holds at that revision.
func Take(ctx context.Context, work *Work, req Request) (*Taken, error) {
	t := &Taken{Record: Record{
		Taken: req.Now().UTC().Truncate(time.Second), Server: req.Server, Version: req.Version, WithKeys: req.WithKeys, Sealed: req.Seal != nil,
	}}
	database := work.Path(databaseName)
	var err error
	if t.Record.SHA256, t.Record.Size, err = write(database, func(w io.Writer) error { return req.Stream(ctx, w) }); err != nil {
		return nil, err
	}
	failpoint.Here("snapshot-written")
	if t.Record.Content, err = Check(ctx, database, work.Dir, req.Log); err != nil {
		return nil, err
	}
	if t.Record.Compared, err = compare(ctx, req, t.Record.Content); err != nil {
		return nil, err
	}
	t.Record.Checked = req.Now().UTC().Truncate(time.Second)
	t.Path, t.Record.Name = database, req.Name+plainEnding
	if req.WithKeys {
		t.Record.Name = req.Name + archiveEnding
	}
	if req.Seal != nil {
		t.Record.Name += sealedEnding
	}
	if !req.WithKeys && req.Seal == nil {
		return t, nil
	}
	return t, t.wrap(work, req)
}

// compare reports whether the running store was asked. A different answer is ErrDamaged.
func compare(ctx context.Context, req Request, restored Content) (bool, error) {
	if req.Content == nil {
		return false, nil
	}
	running, err := req.Content(ctx, restored.Revision)
	if err != nil {
		// The revision may be compacted meanwhile, or a majority of the servers be away.
		req.Log.Warn("a snapshot was checked, but not compared with the running store", "revision", restored.Revision, "error", err)
		return false, nil
	}
	if running != restored {
		return false, fmt.Errorf("%w: at revision %d the running store has %d keys (digest %.12s), the restored one %d (digest %.12s)",
			ErrDamaged, restored.Revision, running.Keys, running.Digest, restored.Keys, restored.Digest)
	}
	return true, nil
}

// wrap makes an archive of the database, or encrypts it, or both.
func (t *Taken) wrap(work *Work, req Request) error {
	database := t.Path
	t.Path = work.Path("wrapped")
	var err error
	t.Record.SHA256, t.Record.Size, err = write(t.Path, func(w io.Writer) error {
		if req.Seal == nil {
			return t.writeBody(w, req, database)
		}
		sealed, err := req.Seal.seal(w)
		if err != nil {
			return err
		}
		if err := t.writeBody(sealed, req, database); err != nil {
			return err
		}
		return sealed.Close()
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", t.Record.Name, err)
	}
	return os.Remove(database)
}

func (t *Taken) writeBody(w io.Writer, req Request, database string) error {
	if req.WithKeys {
		return writeArchive(w, Manifest{Version: req.Version, Taken: t.Record.Taken, Content: t.Record.Content}, req.Keys, database)
	}
	f, err := os.Open(database)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// write makes a file, syncs it, and returns its hash and size.
func write(path string, fill func(w io.Writer) error) (sum string, size int64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", 0, err
	}
	hash := sha256.New()
	err = fill(io.MultiWriter(f, hash))
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	return hex.EncodeToString(hash.Sum(nil)), size, errors.Join(err, f.Close())
}
