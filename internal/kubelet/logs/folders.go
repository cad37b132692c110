package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// Where upstream's kubelet keeps logs, and where log collectors look.
const (
	SystemPods  = "/var/log/pods"
	SystemLinks = "/var/log/containers"
)

// record is a file in the node agent's root folder. It lists every folder that has held logs of
// the node's pods, one a line.
const record = "log-folders"

// Folders are the folders of container logs. A container writes to
// PODS/NAMESPACE_POD_UID/CONTAINER/ATTEMPT.log. A link LINKS/POD_NAMESPACE_CONTAINER-ID.log points
// to that file. Other nodes on the same machine may use the same folders: a pod's folder is ours if
// the node agent's root folder has a folder of the pod.
//
// See docs/adr/0056-logs-where-collectors-look.md.
type Folders struct {
	// RootDir is the node agent's root folder.
	RootDir string
	// Pods holds a folder for each pod.
	Pods string
	// Links holds a link for each container.
	Links string

	earlier []string // other folders that may hold logs of our pods
}

// Open makes the folders and moves the logs of our pods there from earlier folders. A link stays at
// the earlier place, because the runtime reopens a log by its first name.
func Open(rootDir, pods string) (*Folders, error) {
	f := &Folders{RootDir: rootDir, Pods: filepath.Clean(pods), Links: SystemLinks}
	if f.Pods == f.own() {
		f.Links = filepath.Join(rootDir, "container-logs")
	}
	if err := os.MkdirAll(f.Pods, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of pods' logs: %w", err)
	}
	if err := os.MkdirAll(f.Links, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of links to logs: %w", err)
	}
	known := readRecord(rootDir)
	all := known
	for _, dir := range []string{f.own(), f.Pods} {
		if !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	if len(all) != len(known) {
		if err := durable.Replace(filepath.Join(rootDir, record), []byte(strings.Join(all, "\n")+"\n")); err != nil {
			return nil, fmt.Errorf("record the folders of logs: %w", err)
		}
	}
	for _, dir := range all {
		if dir != f.Pods {
			f.earlier = append(f.earlier, dir)
		}
	}
	return f, f.adopt()
}

// own is the folder of logs below the node agent's root folder.
func (f *Folders) own() string { return filepath.Join(f.RootDir, "logs") }

func readRecord(rootDir string) []string {
	raw, err := os.ReadFile(filepath.Join(rootDir, record))
	if err != nil {
		return nil
	}
	var out []string
	for _, line := range strings.Split(string(raw), "\n") {
		if filepath.IsAbs(line) && line != "/" {
			out = append(out, filepath.Clean(line))
		}
	}
	return out
}

// adopt moves the logs of our pods from earlier folders.
func (f *Folders) adopt() error {
	var errs []error
	for _, dir := range f.earlier {
		for _, name := range ours(f.RootDir, dir) {
			from, to := filepath.Join(dir, name), filepath.Join(f.Pods, name)
			if st, err := os.Lstat(from); err != nil || !st.IsDir() {
				continue
			}
			if st, err := os.Lstat(to); err == nil && (st.Mode()&fs.ModeSymlink == 0 || os.Remove(to) != nil) {
				continue // the pod has logs in both; the earlier ones stay
			}
			errs = append(errs, move(from, to))
		}
	}
	return errors.Join(errs...)
}

// move moves a folder and leaves a link at its earlier place, in one step: it makes the link at the
// new place and exchanges the two. On another file system the folder stays, and the new place gets
// a link to it.
func move(from, to string) error {
	if err := os.Symlink(to, to); err != nil {
		return err
	}
	if unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE) == nil {
		return nil
	}
	if err := os.Remove(to); err != nil {
		return err
	}
	return os.Symlink(from, to)
}

// ours lists the folders below dir that hold the logs of our pods.
func ours(rootDir, dir string) []string {
	pods, err := os.ReadDir(filepath.Join(rootDir, "pods"))
	if err != nil || len(pods) == 0 {
		return nil
	}
	uids := map[string]bool{}
	for _, p := range pods {
		uids[p.Name()] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if parts := strings.Split(e.Name(), "_"); len(parts) == 3 && uids[parts[2]] {
			out = append(out, e.Name())
		}
	}
	return out
}

// Pod is the folder of a pod's logs.
func (f *Folders) Pod(pod *corev1.Pod) string { return spec.LogDir(f.Pods, pod) }

// Link makes the link of a container's log.
func (f *Folders) Link(pod types.NamespacedName, container, id, path string) error {
	link := filepath.Join(f.Links, LinkName(pod, container, id))
	if to, err := os.Readlink(link); err == nil {
		if to == path {
			return nil
		}
		if err := os.Remove(link); err != nil {
			return err
		}
	}
	return os.Symlink(path, link)
}

// Unlink removes the link of a container's log. A missing link is no error.
func (f *Folders) Unlink(pod types.NamespacedName, container, id string) error {
	err := os.Remove(filepath.Join(f.Links, LinkName(pod, container, id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// maxName is the longest name that a Linux file system takes.
const maxName = 255

// LinkName is upstream's name of the link to a container's log. A long one is cut.
func LinkName(pod types.NamespacedName, container, id string) string {
	const suffix = ".log"
	name := pod.Name + "_" + pod.Namespace + "_" + container + "-" + id
	return name[:min(len(name), maxName-len(suffix))] + suffix
}

// Remove removes the logs of a pod and their links, in whatever folder they are. Of an unknown pod,
// only the UID has to be set.
func (f *Folders) Remove(pod *corev1.Pod) error {
	dirs := append([]string{f.Pods}, f.earlier...)
	if pod.Name == "" {
		return removeUIDs(dirs, map[string]bool{string(pod.UID): true})
	}
	var errs []error
	for i, dir := range dirs {
		dirs[i] = spec.LogDir(dir, pod)
		errs = append(errs, os.RemoveAll(dirs[i]))
	}
	return errors.Join(append(errs, sweep(f.Links, dirs, nil))...)
}

func removeUIDs(dirs []string, uids map[string]bool) error {
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if parts := strings.Split(e.Name(), "_"); len(parts) == 3 && uids[parts[2]] {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// Sweep removes links into our folders whose log is gone. live holds the names of links that stay:
// the log of a running container is missing for a moment while it is rotated.
func (f *Folders) Sweep(live map[string]bool) error {
	return sweep(f.Links, append([]string{f.Pods}, f.earlier...), live)
}

func sweep(links string, dirs []string, live map[string]bool) error {
	entries, err := os.ReadDir(links)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || live[e.Name()] {
			continue
		}
		link := filepath.Join(links, e.Name())
		to, err := os.Readlink(link)
		if err != nil || !slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(to, dir+"/") }) {
			continue
		}
		if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Purge removes the logs of all our pods outside the node agent's root folder, and their links.
func Purge(rootDir string) error {
	pods, err := os.ReadDir(filepath.Join(rootDir, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	uids := map[string]bool{}
	for _, p := range pods {
		uids[p.Name()] = true
	}
	dirs := readRecord(rootDir)
	err = errors.Join(removeUIDs(dirs, uids), sweep(SystemLinks, dirs, nil))
	if slices.Contains(dirs, SystemPods) { // these succeed if this was the machine's last cluster
		_ = os.Remove(SystemPods)
		_ = os.Remove(SystemLinks)
	}
	return err
}
