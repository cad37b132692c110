package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/client"
)

const (
	// refreshPeriod is the interval for measuring free space and for repeating failed steps.
	refreshPeriod = 20 * time.Second
	// orphanAge is how long a volume that no pod ever used may lack its PersistentVolume.
	orphanAge = 10 * time.Minute
	// parallel bounds the steps on the disk at a time.
	parallel = 4
)

// Options configures an Agent.
type Options struct {
	Client client.Interface
	// Volumes lists the node's PersistentVolumes; nil selects Client.
	Volumes  client.Interface
	NodeName string
	// Folders are the paths of the node's folders by name.
	Folders map[string]string
	// Reserved is the part of each file system, in percent, that volumes must leave free.
	Reserved int
	// List is the file with the paths of all folders that the node ever used; Purge reads it. ""
	// keeps no list.
	List string
	Log  *slog.Logger
}

// Agent makes, grows, attaches and removes the volumes of a node. It is safe for concurrent use.
type Agent struct {
	Options
	wake chan struct{}

	mu     sync.Mutex               // guards what follows
	busy   map[string]chan struct{} // volumes that change; closed at the end
	failed map[string]failure       // by volume
}

// failure is the last error of a volume's step.
type failure struct {
	step    string
	message string
	until   time.Time // of the next attempt
}

// New makes an Agent. It changes nothing until Run or Prepare.
func New(o Options) *Agent {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Volumes == nil {
		o.Volumes = o.Client
	}
	return &Agent{Options: o, wake: make(chan struct{}, 1), busy: map[string]chan struct{}{}, failed: map[string]failure{}}
}

// Run makes and removes volumes, and reports, until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	volumes, err := client.Open[*corev1.PersistentVolume](ctx, a.Volumes, client.Scope{LabelSelector: NodeLabel + "=" + LabelOf(a.NodeName)})
	if apierrors.IsForbidden(err) {
		// Another API server gives nodes no such right, and its controllers make no such volumes.
		<-ctx.Done()
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the node's persistent volumes: %w", err)
	}
	nodes, err := client.Open[*corev1.Node](ctx, a.Client, client.Scope{FieldSelector: "metadata.name=" + a.NodeName})
	if err != nil {
		return fmt.Errorf("open the node: %w", err)
	}
	locks := a.open()
	defer func() {
		for _, l := range locks {
			_ = l.file.Close()
		}
	}()
	_, volumesDone := volumes.Subscribe(ctx, func(client.TypedEvent[*corev1.PersistentVolume]) { a.kick() })
	_, nodesDone := nodes.Subscribe(ctx, func(e client.TypedEvent[*corev1.Node]) {
		if e.Type != client.Modified || e.Old.Annotations[ReportAnnotation] != e.Object.Annotations[ReportAnnotation] {
			a.kick()
		}
	})
	defer func() { <-volumesDone; <-nodesDone }()
	s := &syncer{Agent: a, volumes: volumes, nodes: nodes, locks: locks, slots: make(chan struct{}, parallel)}
	defer s.steps.Wait()
	refresh := time.NewTicker(refreshPeriod)
	defer refresh.Stop()
	for {
		if err := s.sync(ctx); err != nil && ctx.Err() == nil {
			a.Log.Warn("cannot report local volumes; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-refresh.C:
		}
	}
}

func (a *Agent) kick() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// lock shows that a folder is this process's.
type lock struct {
	file    *os.File
	trouble string
}

// open makes the folders, locks them, and removes the remains of a killed process.
func (a *Agent) open() map[string]lock {
	locks := map[string]lock{}
	if err := a.remember(); err != nil {
		a.Log.Warn("cannot list the folders for local volumes; a purge will not find them", "error", err)
	}
	for name, path := range a.Folders {
		file, err := claimFolder(path)
		l := lock{file: file}
		if err != nil {
			a.Log.Warn("cannot use a folder for local volumes", "folder", name, "path", path, "error", err)
			l.trouble = err.Error()
		}
		locks[name] = l
	}
	return locks
}

func claimFolder(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another knarr uses the folder %s", path)
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	d := disk{path}
	_, remains, err := d.names()
	for _, name := range remains {
		err = errors.Join(err, d.clear(name))
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// diskOf returns the folder of a volume.
func (a *Agent) diskOf(v *corev1.PersistentVolume) (disk, error) {
	name := v.Annotations[FolderAnnotation]
	path, ok := a.Folders[name]
	if !ok {
		return disk{}, fmt.Errorf("this node has no folder %q; --local-storage-path gives it: %s", name, strings.Join(slices.Sorted(maps.Keys(a.Folders)), ", "))
	}
	return disk{path}, nil
}

// Ours reports whether a persistent volume is a local volume of this provisioner.
func Ours(v *corev1.PersistentVolume) bool {
	return v.Spec.Local != nil && v.Annotations[NodeAnnotation] != "" && v.Annotations[KindAnnotation] != ""
}

// Prepare attaches a volume for a pod. It returns a folder, or a device for volumes of mode Block.
func (a *Agent) Prepare(ctx context.Context, v *corev1.PersistentVolume) (string, error) {
	if v.Annotations[NodeAnnotation] != a.NodeName {
		return "", fmt.Errorf("PV %s is on node %s", v.Name, v.Annotations[NodeAnnotation])
	}
	d, err := a.diskOf(v)
	if err != nil {
		return "", fmt.Errorf("PV %s: %w", v.Name, err)
	}
	if err := safeName(v.Name); err != nil {
		return "", err
	}
	release, err := a.acquire(ctx, v.Name)
	if err != nil {
		return "", err
	}
	defer release()
	a.growFirst(ctx, d, v)
	return d.prepare(v.Name)
}

// growFirst grows a volume that waits for growth before a pod uses it. On machines without
// CAP_SYS_RESOURCE this is the only chance, since a controller replaces a deleted pod at once. If
// it fails, the pod gets the volume as it is, and the next sync tells why.
func (a *Agent) growFirst(ctx context.Context, d disk, v *corev1.PersistentVolume) {
	if v.Annotations[PendingAnnotation] != PendingGrow {
		return
	}
	if used, err := inUse(v.Name); used || err != nil {
		return
	}
	w := wantedOf(v)
	if r, err := d.read(v.Name); err != nil || r.UID != w.uid || r.Bytes >= w.bytes {
		return
	}
	if err := d.make(ctx, w); err != nil {
		a.Log.Warn("cannot grow a local volume before a pod uses it", "volume", v.Name, "error", err)
	}
	a.mu.Lock()
	delete(a.failed, v.Name) // the answer is out of date
	a.mu.Unlock()
	a.kick()
}

// safeName refuses names that are no single folder of their own. The API server allows none.
func safeName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("PersistentVolume %q: the name cannot be a folder", name)
	}
	return nil
}

// acquire waits until no one else changes the volume.
func (a *Agent) acquire(ctx context.Context, name string) (release func(), err error) {
	for {
		a.mu.Lock()
		wait := a.busy[name]
		if wait == nil {
			done := make(chan struct{})
			a.busy[name] = done
			a.mu.Unlock()
			return func() {
				a.mu.Lock()
				delete(a.busy, name)
				a.mu.Unlock()
				close(done)
			}, nil
		}
		a.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Enforcement says how the sizes of volumes in a folder are enforced.
func Enforcement(path string) string {
	if hasQuota(path) {
		return "enforced by project quota"
	}
	m, err := mountOf(path)
	if err != nil {
		return err.Error()
	}
	text := "not enforced, since " + m.kind + " is mounted without prjquota"
	switch {
	case !haveLoops():
		return text + "; this machine has no loop devices for images and block volumes"
	case tool("mkfs.ext4") == "":
		return text + "; install e2fsprogs for classes with the parameter enforce: image"
	}
	return text + "; a class with the parameter enforce: image does enforce them"
}

// measure returns the report of a folder.
func (a *Agent) measure(path string) Folder {
	f := Folder{Path: path}
	var system unix.Statfs_t
	if err := unix.Statfs(path, &system); err != nil {
		f.Trouble = (&fs.PathError{Op: "statfs", Path: path, Err: err}).Error()
		return f
	}
	size, available := int64(system.Blocks)*system.Bsize, int64(system.Bavail)*system.Bsize
	reserved := size / 100 * int64(a.Reserved)
	f.Size = size - reserved
	f.Room = max(0, available-reserved)
	d := disk{path}
	volumes, _, err := d.names()
	if err != nil {
		f.Trouble = err.Error()
		return f
	}
	for _, name := range volumes {
		if r, err := d.read(name); err == nil {
			f.Room += d.used(name, r)
		}
	}
	f.Loop = haveLoops()
	f.Image = f.Loop && tool("mkfs.ext4") != ""
	f.Quota = hasQuota(path)
	if system.Flags&unix.ST_RDONLY != 0 {
		f.Trouble = path + " is on a read-only file system"
	}
	return f
}
