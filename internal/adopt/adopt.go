package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// RecordFile is the file in the data folder that says where it comes from.
const RecordFile = "adopted.json"

// Record says where a data folder comes from.
type Record struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version"` // of kubeadm's API server
	Etcd    member    `json:"etcd"`
	Files   []copied  `json:"files,omitempty"`
}

// Result describes the data folder that Adopt has made.
type Result struct {
	Settings string // path of the file for --config
	Revision int64
	Keys     int // in the store
}

// ErrRefused means that a plan has refusals.
var ErrRefused = errors.New("the control plane cannot be taken over as it is")

// Adopt carries out a plan of the same options: it makes the data folder. kubeadm's files stay as
// they are. A crash leaves no data folder.
func Adopt(ctx context.Context, p *Plan, o Options, log *slog.Logger) (result Result, err error) {
	if len(p.Refusals) > 0 {
		return result, fmt.Errorf("adopt: %w:\n- %s", ErrRefused, strings.Join(p.Refusals, "\n- "))
	}
	m, err := openMachine(o.From)
	if err != nil {
		return result, fmt.Errorf("adopt: %w", err)
	}
	defer func() { err = errors.Join(err, m.close()) }()
	work, done, err := workBeside(p.dataDir)
	if err != nil {
		return result, fmt.Errorf("adopt: %w", err)
	}
	defer func() { err = errors.Join(err, done()) }()
	if result, err = p.carryOut(ctx, m, o, work, log); err != nil {
		return result, fmt.Errorf("adopt: %w", err)
	}
	return result, nil
}

// workBeside makes a folder for unfinished files on the file system of dir. The next call removes
// that of a killed process.
func workBeside(dir string) (*snapshots.Work, func() error, error) {
	parent := filepath.Clean(dir) + ".adopting"
	work, err := snapshots.NewWork(parent)
	if err != nil {
		return nil, nil, err
	}
	return work, func() error {
		err := work.Close()
		if removed := os.Remove(parent); removed != nil && !errors.Is(removed, unix.ENOTEMPTY) {
			err = errors.Join(err, removed)
		}
		return err
	}, nil
}

func (p *Plan) carryOut(ctx context.Context, m *machine, o Options, work *snapshots.Work, log *slog.Logger) (Result, error) {
	result := Result{Settings: filepath.Join(p.dataDir, SettingsFile)}
	if err := m.copyMember(ctx, p.etcd.DataDir, work.Path("copy")); err != nil {
		return result, err
	}
	snapshot, data := work.Path("snapshot.db"), work.Path("data")
	err := etcd.ExportForeign(ctx, etcd.Foreign{DataDir: work.Path("copy"), Force: o.Force, Log: log}, snapshot)
	if errors.Is(err, etcd.ErrSeveralMembers) {
		return result, fmt.Errorf("%w: %s", err, severalRemedy)
	} else if err != nil {
		return result, err
	}
	if err := os.RemoveAll(work.Path("copy")); err != nil {
		return result, err
	}
	info, err := etcd.InspectSnapshot(snapshot)
	if err != nil {
		return result, err
	}
	result.Revision, result.Keys = info.Revision, info.Keys
	if err := os.MkdirAll(data, 0o755); err != nil {
		return result, err
	}
	if err := etcd.Restore(etcd.RestoreOptions{Path: snapshot, DataDir: filepath.Join(data, "etcd"), Log: log}); err != nil {
		return result, err
	}
	if err := p.writeFiles(data, o.Now); err != nil {
		return result, err
	}
	if err := syncTree(data); err != nil {
		return result, err
	}
	failpoint.Here("adopt-staged")
	// Renaming onto an empty folder replaces it; os.Rename does not do that.
	if err := unix.Rename(data, p.dataDir); err != nil {
		return result, fmt.Errorf("rename %s to %s: %w", data, p.dataDir, err)
	}
	return result, durable.SyncFolder(filepath.Dir(p.dataDir))
}

// writeFiles writes keys, settings and notes below data.
func (p *Plan) writeFiles(data string, now time.Time) error {
	files := map[string][]byte{}
	for name, content := range p.keys.files() {
		files[filepath.Join("pki", name)] = content
	}
	for _, f := range p.files {
		files[filepath.Join(folder, f.Name)] = f.data
	}
	settings, err := p.settingsFile()
	if err != nil {
		return err
	}
	record, err := json.MarshalIndent(Record{Time: now.UTC().Truncate(time.Second), Version: p.Version, Etcd: p.etcd, Files: p.files}, "", "  ")
	if err != nil {
		return err
	}
	files[SettingsFile], files[RecordFile] = settings, append(record, '\n')
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(data, name)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(data, name), content, 0o600); err != nil {
			return err
		}
	}
	// kubeadm's own folder is the way back, so the first start keeps no snapshot.
	note := snapshots.Written{By: snapshots.CurrentWriter(), Since: now.UTC().Truncate(time.Second)}
	return note.Write(data, func(path string, content []byte) error { return os.WriteFile(path, content, 0o600) })
}
