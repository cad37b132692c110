package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/cri"
	"github.com/knarr-project/knarr/internal/doctor"
	"github.com/knarr-project/knarr/internal/version"
)

// here is the registry of this machine's clusters. Tests replace it.
var here = clusters.Here

// locked runs fn while this process holds the data folder and the record names it. It first checks
// that the machine meets the roles' requirements. A failed first start leaves nothing behind.
func (p Params) locked(role string, needs doctor.Role, fn func(Params) error) error {
	fresh := emptyOrMissing(p.Config.DataDir)
	f, err := lock(p.Config.DataDir)
	if errors.Is(err, errLocked) {
		return explainLock(err, p.Config.DataDir)
	}
	if err == nil {
		defer f.Close()
	}
	// A data folder that cannot be locked gives a finding with a remedy.
	if refused := p.examine(needs); refused != nil {
		if err == nil && fresh.any() {
			refused = errors.Join(refused, fresh.restore(p.Config))
		}
		return refused
	}
	if err != nil {
		return explainLock(err, p.Config.DataDir)
	}
	r := p.record(role)
	if err := here().Enter(r); err != nil {
		return err
	}
	defer recordCrashes(p.Config.DataDir, p.Log)()
	if p.Held != nil {
		err = p.Held()
	}
	ready := p.Ready
	p.Ready = func() {
		r.Ready = time.Now()
		if err := r.Save(); err != nil {
			p.Log.Warn("`knarr status` shows this cluster as starting", "error", err)
		}
		if ready != nil {
			ready()
		}
	}
	if err == nil {
		err = fn(p)
	}
	if err != nil && r.Ready.IsZero() && fresh.any() && !worthKeeping(p.Config) {
		return errors.Join(err, fresh.restore(p.Config))
	}
	return errors.Join(err, r.Leave(err, time.Now()))
}

// record returns a new record of this process.
func (p Params) record(role string) *clusters.Record {
	c := p.Config
	r := &clusters.Record{
		DataDir: c.DataDir, Role: role, Version: version.Current().Knarr, Started: time.Now(), Detached: p.Detached, Flags: p.Flags,
		AdvertiseAddress: c.AdvertiseAddress,
	}
	if r.HasServer() {
		r.Listen, r.PeerListen, r.NodeName = c.Listen, c.PeerListen, c.NodeName
	} else {
		r.Join = c.Join
	}
	if r.HasNode() {
		r.RunDir, r.CgroupRoot, r.KubeletListen, r.NodeName, r.RuntimeEndpoint = c.RunDir, c.CgroupRoot, c.KubeletListen, c.NodeName, c.RuntimeEndpoint
	}
	if r.HasNode() && r.RunDir == "" {
		r.RunDir = cri.DefaultRunDir(c.DataDir)
	}
	return r
}

// explainLock explains why the data folder cannot be locked: which process runs on it since when,
// or what is wrong with it.
func explainLock(err error, dataDir string) error {
	switch {
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: this user may not write there; sudo, or a --data-dir of one's own", err)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: --data-dir has to be a folder", err)
	case !errors.Is(err, errLocked):
		return err
	}
	r, recordErr := clusters.Load(dataDir)
	if recordErr != nil || !r.Alive() {
		return err
	}
	return &lockedError{fmt.Sprintf("another knarr (`knarr %s`, process %d) runs on %s since %s: `knarr status %s` shows it, `knarr stop %s` ends it; another cluster needs another --data-dir",
		r.Role, r.PID, dataDir, r.Started.Local().Format("2006-01-02 15:04:05"), r.Name, r.Name)}
}

// lockedError is errLocked with a message from the record.
type lockedError struct{ text string }

func (e *lockedError) Error() string { return e.text }
func (e *lockedError) Unwrap() error { return errLocked }

// folderState is the state of a data folder before the start.
type folderState int

const (
	used folderState = iota
	empty
	missing
)

func (b folderState) any() bool { return b != used }

func emptyOrMissing(dataDir string) folderState {
	entries, err := os.ReadDir(dataDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return missing
	case err == nil && len(entries) == 0:
		return empty
	}
	return used
}

// worthKeeping reports whether a failed first start has made something that cannot be made again:
// certificates of another cluster, keys known to an outside store, or containers.
func worthKeeping(cfg *config.Config) bool {
	if hasJoined(cfg) || serverHasJoined(cfg) {
		return true
	}
	if _, err := os.Stat(cfg.Path("pki")); err == nil && cfg.SharesStore() {
		return true
	}
	containers, _ := filepath.Glob(filepath.Join(runDir(cfg), "runc", "*", "*"))
	return len(containers) > 0
}

func runDir(cfg *config.Config) string {
	if cfg.RunDir != "" {
		return cfg.RunDir
	}
	return cri.DefaultRunDir(cfg.DataDir)
}

// restore restores the data folder's earlier state and removes the run folder.
func (b folderState) restore(cfg *config.Config) error {
	errs := []error{here().Forget(cfg.DataDir), releaseKubeletDir(cfg.DataDir)}
	for _, dir := range []string{cfg.DataDir, runDir(cfg)} {
		err := cri.UnmountBelow(dir)
		if err == nil {
			err = removeFolder(dir)
		}
		errs = append(errs, err)
	}
	_ = os.Remove("/run/knarr") // fails unless empty
	if b == empty {
		errs = append(errs, os.MkdirAll(cfg.DataDir, 0o755))
	}
	return errors.Join(errs...)
}

// beside is locked for a component that shares its data folder with others. It takes over the
// record if the recorded process does not run. Otherwise it adds the settings that other commands
// need.
func (p Params) beside(role string, fn func() error) error {
	if err := os.MkdirAll(p.Config.DataDir, 0o755); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	r := p.record(role)
	if holder, err := clusters.Load(p.Config.DataDir); err == nil && holder.Alive() {
		holder.RunDir, holder.CgroupRoot, holder.KubeletListen, holder.NodeName = r.RunDir, r.CgroupRoot, r.KubeletListen, r.NodeName
		return errors.Join(holder.Save(), fn())
	}
	if err := here().Enter(r); err != nil {
		return err
	}
	r.Ready = time.Now()
	err := errors.Join(r.Save(), fn())
	if now, loadErr := clusters.Load(p.Config.DataDir); loadErr != nil || now.PID != r.PID {
		return err // changed by another process meanwhile, or purged
	}
	return errors.Join(err, r.Leave(err, time.Now()))
}
