package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// ownKeys is the prefix of knarr's own keys in the store. They stay behind.
const ownKeys = "/knarr/"

// Release says where to give a cluster back.
type Release struct {
	// DataDir is knarr's data folder. The caller holds its lock.
	DataDir string
	// To is the folder that stands for / of the kubeadm machine. It has the manifests of the static
	// pods and the keys.
	To string
	// Manifests is the folder below To with the parked manifests. Default: Parked, else StaticPods.
	Manifests string
	Now       time.Time
}

// Released lists the files and keys that Release has written, kept and left out.
type Released struct {
	Etcd     string   // etcd's data folder
	Kept     string   // the data that was in it, or ""
	Revision int64    // of the store
	Removed  []string // knarr's own keys, which are not in it
	Written  []string // keys and configuration files that differed; the old ones are beside them
	CA       bool     // the CA differed: certificates of it have to be renewed
	Parked   string   // the folder of the manifests, if they are parked
}

// GiveBack writes knarr's objects and keys where kubeadm's control plane has its own. knarr's data
// folder stays as it is. The folder of etcd's data changes by one rename.
func GiveBack(ctx context.Context, o Release, log *slog.Logger) (r Released, err error) {
	m, err := openMachine(o.To)
	if err != nil {
		return r, fmt.Errorf("release: %w", err)
	}
	defer func() { err = errors.Join(err, m.close()) }()
	pods, err := m.manifests(o.Manifests)
	if err != nil {
		return r, fmt.Errorf("release: %w", err)
	}
	if pods[etcdPod] == nil {
		return r, errors.New("release: there is no manifest of etcd: kubeadm makes one by `kubeadm init phase etcd local`")
	}
	if err := releasable(m, pods); err != nil {
		return r, fmt.Errorf("release: %w", err)
	}
	if m.exists(path.Join(Parked, apiserver+".yaml")) {
		r.Parked = m.host(Parked)
	}
	target := etcdMember(pods[etcdPod])
	if err := m.root.MkdirAll(below(target.DataDir), 0o700); err != nil {
		return r, fmt.Errorf("release: %w", m.explain(target.DataDir, err))
	}
	r.Etcd = m.host(target.DataDir)
	work, err := snapshots.NewWork(r.Etcd)
	if err != nil {
		return r, fmt.Errorf("release: %w", err)
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	if err := r.storeFor(ctx, o, target, work, log); err != nil {
		return r, fmt.Errorf("release: %w", err)
	}
	if err := r.giveFiles(m, pods, o); err != nil {
		return r, fmt.Errorf("release: %w", err)
	}
	if err := r.publish(m, target, work.Path("new"), o.Now); err != nil {
		return r, fmt.Errorf("release: %w", err)
	}
	return r, nil
}

// releasable refuses to write below a control plane that runs, or for programs that are too old.
func releasable(m *machine, pods map[string]*component) error {
	for _, name := range components {
		if file := path.Join(StaticPods, name+".yaml"); m.exists(file) {
			return fmt.Errorf("the kubelet would start kubeadm's control plane meanwhile: move %s to %s first", m.host(file), m.host(Parked))
		}
	}
	if v, ok := versionOf(pods[etcdPod].image); ok && (v.major < 3 || v.major == 3 && v.minor < 6) {
		return fmt.Errorf("the manifest has etcd %s, and the data has the form of etcd 3.6: put a newer image into it", v)
	}
	return nil
}

// storeFor makes etcd's data folder work/new.
func (r *Released) storeFor(ctx context.Context, o Release, target member, work *snapshots.Work, log *slog.Logger) error {
	first, second := work.Path("first.db"), work.Path("second.db")
	own, err := etcd.Open(ctx, etcd.Options{DataDir: filepath.Join(o.DataDir, "etcd"), Log: log})
	if err != nil {
		return err
	}
	if err := errors.Join(saveStore(ctx, own, first), own.Close()); err != nil {
		return err
	}
	scratch := work.Path("scratch")
	if err := etcd.Restore(etcd.RestoreOptions{Path: first, DataDir: scratch, Log: log}); err != nil {
		return err
	}
	db, err := etcd.Open(ctx, etcd.Options{DataDir: scratch, UnsafeNoSync: true, Log: log})
	if err != nil {
		return err
	}
	r.Removed, err = removeOwn(ctx, db)
	if err == nil {
		r.Revision, err = db.Revision(ctx)
	}
	if err == nil {
		err = saveStore(ctx, db, second)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := etcd.Restore(etcd.RestoreOptions{Path: second, DataDir: work.Path("new"), Name: target.Name, PeerURL: target.PeerURL, Log: log}); err != nil {
		return err
	}
	return syncTree(work.Path("new"))
}

func saveStore(ctx context.Context, db *etcd.Engine, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(db.Snapshot(ctx, f), f.Close())
}

// removeOwn removes knarr's own keys from a store and returns their names.
func removeOwn(ctx context.Context, db store.Store) (removed []string, err error) {
	for {
		page, err := db.Range(ctx, ownKeys, store.RangeOptions{Limit: 100})
		if err != nil || len(page.KVs) == 0 {
			return removed, err
		}
		for i := range page.KVs {
			kv := &page.KVs[i]
			if _, err := db.Commit(ctx, []store.Condition{{Key: kv.Key, ModRevision: kv.ModRevision}}, store.Op{Key: kv.Key, Delete: true}); err != nil {
				return removed, err
			}
			removed = append(removed, kv.Key)
		}
	}
}

// giveFiles writes the keys and configuration files that have changed since the adoption.
func (r *Released) giveFiles(m *machine, pods map[string]*component, o Release) error {
	api, manager, peers := pods[apiserver], pods[controller], pods[etcdPod]
	front := api.onHost(api.get("requestheader-client-ca-file", "/etc/kubernetes/pki/front-proxy-ca.crt"))
	etcdCA := peers.onHost(peers.get("peer-trusted-ca-file", "/etc/kubernetes/pki/etcd/ca.crt"))
	ca := manager.onHost(manager.get("cluster-signing-cert-file", "/etc/kubernetes/pki/ca.crt"))
	public := api.onHost("/etc/kubernetes/pki/sa.pub")
	if all := api.all("service-account-key-file"); len(all) > 0 {
		public = api.onHost(all[0])
	}
	type file struct{ from, to string }
	files := []file{
		{"pki/ca.crt", ca},
		{"pki/ca.key", manager.onHost(manager.get("cluster-signing-key-file", "/etc/kubernetes/pki/ca.key"))},
		{"pki/front-proxy-ca.crt", front},
		{"pki/front-proxy-ca.key", path.Join(path.Dir(front), "front-proxy-ca.key")},
		{"pki/sa.pub", public},
		{"pki/sa.key", api.onHost(api.get("service-account-signing-key-file", "/etc/kubernetes/pki/sa.key"))},
	}
	// The CA of knarr's members is not the one of kubeadm's etcd, unless it was taken over.
	if record, err := readRecord(o.DataDir); err != nil {
		return err
	} else if record != nil {
		for _, f := range record.Files {
			files = append(files, file{path.Join(folder, f.Name), f.Source})
		}
		files = append(files, file{"pki/etcd/ca.crt", etcdCA}, file{"pki/etcd/ca.key", path.Join(path.Dir(etcdCA), "ca.key")})
	}
	var tried []string
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(o.DataDir, filepath.FromSlash(f.from)))
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(f.from, "pki/etcd/") {
			continue
		}
		if err != nil {
			return err
		}
		if slices.Contains(tried, f.to) {
			continue
		}
		tried = append(tried, f.to)
		changed, err := m.replace(f.to, data, o.Now)
		if err != nil {
			return err
		}
		if changed {
			r.Written = append(r.Written, m.host(f.to))
			r.CA = r.CA || f.to == ca || f.to == front || f.to == etcdCA
		}
	}
	return nil
}

func readRecord(dataDir string) (*Record, error) {
	data, err := os.ReadFile(filepath.Join(dataDir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	record := &Record{}
	if err := json.Unmarshal(data, record); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dataDir, RecordFile), err)
	}
	return record, nil
}

// replace writes a file unless it has the content already, and keeps the old one beside it.
func (m *machine) replace(name string, data []byte, now time.Time) (changed bool, err error) {
	if m.exists(name) {
		have, err := m.read(name)
		if err != nil || sameKeys(have, data) {
			return false, err
		}
		kept, err := m.root.OpenFile(below(name+before(now)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return false, err
		}
		_, err = kept.Write(have)
		if err = errors.Join(err, kept.Sync(), kept.Close()); err != nil {
			return false, err
		}
	} else if err := m.root.MkdirAll(below(path.Dir(name)), 0o700); err != nil {
		return false, m.explain(name, err)
	}
	return true, durable.WriteFile(m.host(name), data)
}

// sameKeys compares files; how lines end does not matter.
func sameKeys(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }

func before(now time.Time) string { return ".before-" + now.UTC().Format(snapshots.TimeFormat) }

// publish puts the new member in the place of the old one, which it keeps. There is always one.
func (r *Released) publish(m *machine, target member, made string, now time.Time) error {
	fresh, place := filepath.Join(made, "member"), filepath.Join(r.Etcd, "member")
	failpoint.Here("release-staged")
	if !m.exists(path.Join(target.DataDir, "member")) {
		if err := os.Rename(fresh, place); err != nil {
			return err
		}
		return durable.SyncFolder(r.Etcd)
	}
	db, err := m.lockDatabase(target.DataDir)
	switch {
	case errors.Is(err, errRunning):
		return fmt.Errorf("%s: %w: stop kubeadm's control plane first", r.Etcd, err)
	case err == nil:
		defer db.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	// The new data gets the name of the old first, so that no crash leaves the old data in the work
	// folder, which the next release removes.
	r.Kept = place + before(now)
	if err := os.Rename(fresh, r.Kept); err != nil {
		return err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, r.Kept, unix.AT_FDCWD, place, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchange %s and %s: %w", r.Kept, place, err)
	}
	return durable.SyncFolder(r.Etcd)
}
