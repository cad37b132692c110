package clusters

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// DefaultDataDir is the data folder of a cluster that was started without --data-dir.
const DefaultDataDir = "/var/lib/knarr"

// Registry is a list of folders of links. The first one receives new links.
type Registry struct {
	Dirs []string
	// DefaultDataDir is always checked, without a link.
	DefaultDataDir string
}

// Here returns this machine's registry: /run/knarr/clusters. For other users than root it also has
// a folder below $XDG_RUNTIME_DIR.
func Here() Registry {
	const shared = "/run/knarr/clusters"
	r := Registry{Dirs: []string{shared}, DefaultDataDir: DefaultDataDir}
	if own := os.Getenv("XDG_RUNTIME_DIR"); own != "" && os.Geteuid() != 0 {
		r.Dirs = []string{filepath.Join(own, "knarr", "clusters"), shared}
	}
	return r
}

// Enter makes r the record of this process: it sets the name, writes the record and links it. From
// an earlier run's record it takes the name and all settings that r lacks. If the link cannot be
// made, the cluster runs without one.
func (g Registry) Enter(r *Record) error {
	identity, err := Identity(os.Getpid())
	if err != nil {
		return err
	}
	r.PID, r.Process = os.Getpid(), identity
	if before, err := Load(r.DataDir); err == nil {
		r.Name, r.before = before.Name, before
		r.inherit(before)
	}
	g.prune()
	r.Name = g.link(r.Name, r.DataDir)
	return r.Save()
}

// inherit takes over the settings that this role does not have.
func (r *Record) inherit(before *Record) {
	then := before.places()
	for i, now := range r.places() {
		if *now == "" {
			*now = *then[i]
		}
	}
}

// places lists the settings that other commands and the next start use.
func (r *Record) places() []*string {
	return []*string{&r.RunDir, &r.CgroupRoot, &r.Listen, &r.PeerListen, &r.KubeletListen, &r.NodeName, &r.Join}
}

// Leave records that the process has ended, and why. If the process never became ready, its
// settings may be the cause, so earlier settings are kept.
func (r *Record) Leave(cause error, now time.Time) error {
	r.PID, r.Process, r.Stopped = 0, "", now
	if cause != nil {
		r.Cause = cause.Error()
	}
	if r.Ready.IsZero() && r.before != nil {
		then := r.before.places()
		for i, place := range r.places() {
			*place = *then[i]
		}
		r.Flags = r.before.Flags
	}
	return r.Save()
}

// link makes the link to a data folder and returns its name: the wanted name, the folder's name, or
// the folder's name with a hash of the path.
func (g Registry) link(wanted, dataDir string) string {
	base := filepath.Base(dataDir)
	if wanted == "" {
		wanted = base
	}
	names := []string{wanted, base + "-" + shortHash(dataDir)}
	dir := g.Dirs[0]
	// Every user of the machine may read the names.
	_ = os.MkdirAll(filepath.Dir(dir), 0o755)
	_ = os.MkdirAll(dir, 0o755)
	for _, name := range names {
		path := filepath.Join(dir, name)
		err := os.Symlink(dataDir, path)
		if errors.Is(err, fs.ErrExist) {
			target, _ := os.Readlink(path)
			if target == dataDir {
				return name
			}
			if _, gone := Load(target); errors.Is(gone, ErrNone) && os.Remove(path) == nil {
				err = os.Symlink(dataDir, path)
			}
		}
		if err == nil {
			return name
		}
	}
	return wanted
}

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// prune removes links to folders that were removed without a purge.
func (g Registry) prune() {
	for _, dir := range g.Dirs {
		for name, target := range links(dir) {
			if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
				_ = os.Remove(filepath.Join(dir, name)) // another user's link stays
			}
		}
	}
}

// Forget removes the links to a data folder, and the folder of links if it is empty.
func (g Registry) Forget(dataDir string) error {
	var errs []error
	g.prune()
	for _, dir := range g.Dirs {
		for name, target := range links(dir) {
			if target == dataDir {
				if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
		_ = os.Remove(dir) // fails unless empty
	}
	return errors.Join(errs...)
}

// links returns the names in a folder and their targets.
func links(dir string) map[string]string {
	found := map[string]string{}
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil && filepath.IsAbs(target) {
			found[entry.Name()] = filepath.Clean(target)
		}
	}
	return found
}

// List returns the records of all known clusters, sorted by name. It leaves out links to folders
// without a record.
func (g Registry) List() []*Record {
	byFolder := map[string]*Record{}
	add := func(dataDir, name string) {
		if byFolder[dataDir] != nil {
			return
		}
		if r, err := Load(dataDir); err == nil {
			if name != "" {
				r.Name = name
			}
			byFolder[dataDir] = r
		}
	}
	for _, dir := range g.Dirs {
		for name, dataDir := range links(dir) {
			add(dataDir, name)
		}
	}
	add(g.DefaultDataDir, "")
	list := make([]*Record, 0, len(byFolder))
	for _, r := range byFolder {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *Record) int { return strings.Compare(a.Name+"\x00"+a.DataDir, b.Name+"\x00"+b.DataDir) })
	return list
}

// Alive returns the running clusters.
func (g Registry) Alive() []*Record {
	return slices.DeleteFunc(g.List(), func(r *Record) bool { return !r.Alive() })
}

// Find returns the cluster of that name.
func (g Registry) Find(name string) (*Record, error) {
	known := g.List()
	for _, r := range known {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w has the name %q: %s", ErrNone, name, Names(known))
}

// Names formats the names of clusters for a message.
func Names(known []*Record) string {
	if len(known) == 0 {
		return "`knarr ls` knows none"
	}
	names := make([]string, len(known))
	for i, r := range known {
		names[i] = r.Name
	}
	return "`knarr ls` knows " + strings.Join(names, ", ")
}

// Listening returns the running cluster that uses a port of this machine's network, for its API
// server or its node.
func (g Registry) Listening(address string) (*Record, bool) {
	wanted, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, false
	}
	for _, r := range g.Alive() {
		if r.PID == os.Getpid() || !SameNetwork(r.PID) {
			continue
		}
		if r.HasServer() && conflicts(wanted, r.Listen) || r.HasNode() && conflicts(wanted, r.KubeletListen) {
			return r, true
		}
	}
	return nil, false
}

// conflicts reports whether two listeners conflict.
func conflicts(a netip.AddrPort, other string) bool {
	b, err := netip.ParseAddrPort(other)
	return err == nil && a.Port() == b.Port() && (a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}

// Named sets the record's name to that of its link.
func (g Registry) Named(r *Record) *Record {
	for _, dir := range g.Dirs {
		for name, target := range links(dir) {
			if target == r.DataDir {
				r.Name = name
				return r
			}
		}
	}
	return r
}
